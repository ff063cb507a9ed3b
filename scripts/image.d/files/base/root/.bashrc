# An interactive shell in a box; commands run by the tools do not read this.
[[ $- == *i* ]] || return
PS1='\u@\h:\w\$ '
