[ -n "$BASH" ] && [ -f ~/.bashrc ] && . ~/.bashrc
