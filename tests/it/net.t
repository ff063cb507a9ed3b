#!/bin/bash
# shellcheck disable=SC2317 # yes and no call functions by name
# The network rules of boxes, with namespaces in the place of boxes: what must not be reached does answer
# when the rules are taken away. scripts/net itself: idempotent, refuses clashing ranges, restores.
if ((EUID != 0)) || ! unshare --net true 2>/dev/null; then
	echo "1..0 # SKIP needs root and network namespaces"
	exit 0
fi
set -uo pipefail
# shellcheck source=tests/lib/rig.bash disable=SC2317
source "$(dirname "$(readlink -f "$0")")/../lib/rig.bash"
rig_enter "$@"

n=0
failed=0
ok() {
	n=$((n + 1))
	if [[ $1 == 0 ]]; then echo "ok $n - $2"; else echo "not ok $n - $2"; failed=1; fi
}
yes() { local what=$1; shift; "$@" >/dev/null 2>&1; ok $? "$what"; }
no() { local what=$1; shift; ! "$@" >/dev/null 2>&1; ok $? "$what"; }
net() { "$RIG_ROOT/scripts/net" "$@"; }

# box N: a namespace with a control and a user link named and addressed as libvirt does it.
box() {
	local base=$((4 * $1))
	ip netns add "box$1"
	ip link add "r0c$1x" type veth peer name ctl0 netns "box$1"
	ip link add "r0u$1x" type veth peer name eth0 netns "box$1"
	link "r0c$1x" "sr0c$1" ctl0 $((base)) "$1"
	link "r0u$1x" "sr0u$1" eth0 $((base + 2)) "$1"
	ip -n "box$1" link set lo up
	ip -n "box$1" route add default via "100.64.0.$((base + 2))"
	ip -n "box$1" addr add "fd00:b0::$1/128" dev eth0 nodad
	ip -n "box$1" -6 route add default via fe80::1 dev eth0
	ip addr add fe80::1/64 dev "sr0u$1" nodad
	ip -6 route add "fd00:b0::$1/128" dev "sr0u$1"
}
link() {
	ip link set "$1" name "$2"
	ip addr add "100.64.0.$4/32" peer "100.64.0.$(($4 + 1))/32" dev "$2"
	ip link set "$2" up
	ip -n "box$5" addr add "100.64.0.$(($4 + 1))/32" dev "$3"
	ip -n "box$5" link set "$3" up
	ip -n "box$5" route add "100.64.0.$4" dev "$3"
}
# What NAMESPACE gets from ADDRESS PORT.
get() {
	local to=TCP4:$2:$3
	[[ $2 != *:* ]] || to=TCP6:[$2]:$3
	[[ $(ip netns exec "$1" timeout 2 socat -T1 - "$to,connect-timeout=1" </dev/null 2>/dev/null) == canary ]]
}
from_host() { [[ $(timeout 2 socat -T1 - "TCP4:$1:$2,connect-timeout=1" </dev/null 2>/dev/null) == canary ]]; }
# Whether the name server $2 gives NAMESPACE the address with the bytes $4 for $3.example.
ask() {
	[[ $(printf '\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04%s\x07example\0\0\x01\0\x01' "$3" |
		ip netns exec "$1" timeout 2 socat -T1 - "UDP4:$2:53" | od -An -tx1 | tr -d ' \n') == *"$4" ]]
}
# A datagram with a source that is not the box's; the outside counts what arrives.
spoof() {
	ip -n box1 addr add 198.18.5.5/32 dev lo
	ip netns exec outside timeout 2 socat -u UDP4-RECV:9999,bind=203.0.113.80 STDOUT >"$RIG/spoof" &
	sleep 0.3
	echo spoofed | ip netns exec box1 socat -u - UDP4-SENDTO:203.0.113.80:9999,bind=198.18.5.5
	wait $!
	ip -n box1 addr del 198.18.5.5/32 dev lo
	grep -q spoofed "$RIG/spoof"
}

before=$(cat /proc/sys/net/ipv4/ip_forward)
rig_outside_start
ip netns exec outside dnsmasq --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces --listen-address=198.51.100.2 \
	--pid-file="$RIG/up.pid" --address=/good.example/9.9.9.9 --address=/evil.example/10.1.2.3
export SBX_RESOLVER_UPSTREAMS=198.51.100.2

no "check says that nothing stands" net check
yes "up" net up
yes "check says that all stands" net check
first=$(nft list table inet sbx_r0)
resolver=$(cat "$SBX_RUN_DIR/resolver.pid")
yes "up again" net up
[[ $first == "$(nft list table inet sbx_r0)" && $resolver == "$(cat "$SBX_RUN_DIR/resolver.pid")" ]]
ok $? "up again changes nothing"

box 1
box 2
for address in $RIG_FORBIDDEN $RIG_PUBLIC fd00:ec2::254; do rig_canary outside "$address" 80; done
rig_canary "" 0.0.0.0 8080
rig_canary "" 100.64.0.1 80
rig_canary "" :: 8081
for i in 1 2; do rig_canary "box$i" 0.0.0.0 7080; rig_canary "box$i" 0.0.0.0 80; rig_canary "box$i" :: 81; done
rig_wait 5 from_host 100.64.0.5 7080
rig_wait 5 get outside "$RIG_PUBLIC" 80

forbidden() {
	local address verb=$1 word=$2
	for address in $RIG_FORBIDDEN; do $verb "$word $address" get box1 "$address" 80; done
	$verb "$word metadata over IPv6" get box1 fd00:ec2::254 80
	$verb "$word the other box" get box1 100.64.0.11 80
	$verb "$word the other box over IPv6" get box1 fd00:b0::2 81
	$verb "$word the host by its side of the link" get box1 100.64.0.6 8080
	$verb "$word the host by its outer address" get box1 198.51.100.1 8080
	$verb "$word the host over IPv6" get box1 fe80::1%eth0 8081
	$verb "$word the resolver's address at another port" get box1 100.64.0.1 80
	$verb "$word boxd of the other box" get box1 100.64.0.9 7080
	$verb "$word a box from outside" get outside 100.64.0.7 80
	$verb "$word boxd from outside" get outside 100.64.0.5 7080
	$verb "$word another port on the control link" from_host 100.64.0.5 80
	$verb "$word the host from the control link" get box1 100.64.0.4 8080,bind=100.64.0.5
	$verb "$word the outside with another's source" spoof
}

yes "a box reaches the internet" get box1 "$RIG_PUBLIC" 80
yes "the host reaches boxd" from_host 100.64.0.5 7080
yes "the host reaches a box's own service" from_host 100.64.0.7 80
yes "a box asks the resolver" ask box1 100.64.0.1 good 09090909
no "names that lead into private ranges are not given" ask box1 100.64.0.1 evil 0a010203
yes "though the name server above gives them" ask outside 198.51.100.2 evil 0a010203
no "the resolver is not for the outside" ask outside 100.64.0.1 good 09090909
forbidden no "the rules stop:"

SBX_ALLOW_NETS=10.1.2.0/24 net up
yes "SBX_ALLOW_NETS opens what it lists" get box1 10.1.2.3 80
no "and nothing else" get box1 192.168.7.7 80
net up
no "and is closed again without it" get box1 10.1.2.3 80

nft delete table inet sbx_r0
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
ip -n outside -6 route add fd00:b0::/64 via fd00:5b::1
forbidden yes "without the rules answers:"

net up
yes "down" net down
[[ -z $(nft list tables) && $(cat /proc/sys/net/ipv4/ip_forward) == "$before" && ! -e $SBX_RUN_DIR/resolver.pid ]]
ok $? "down leaves nothing and restores forwarding"
! ip -4 addr show dev lo | grep -q 100.64
ok $? "down takes the resolver's address away"
yes "down again" net down
for range in 198.51.100.0/25 198.51.0.0/16 203.0.113.0/24; do
	ip addr add 203.0.113.200/30 dev lo 2>/dev/null
	out=$(SBX_BOX_CIDR=$range net up 2>&1)
	[[ $? != 0 && $out == *"overlaps a route"* ]]
	ok $? "a range that the host uses is refused: $range"
done
no "nonsense is refused" env SBX_BOX_CIDR=100.64.0.0 "$RIG_ROOT/scripts/net" up
no "so is a hostile tag" env SBX_INSTANCE_TAG='*"' "$RIG_ROOT/scripts/net" up
no "and a hostile list" env SBX_ALLOW_NETS='10.0.0.0/8 } drop' "$RIG_ROOT/scripts/net" up

echo "1..$n"
exit $failed
