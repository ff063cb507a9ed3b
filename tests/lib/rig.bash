# shellcheck shell=bash
# The test rig: an instance of its own inside its own mount, network and process namespaces, with its own
# libvirtd, virtlogd and PostgreSQL, and forbidden networks played by a neighbour namespace. Nothing in it
# can reach the network or a living installation, and everything in it ends with it.
#
#     source tests/lib/rig.bash
#     rig_enter "$@"            # from here on we are inside; needs root
#     rig_libvirt_start; rig_pg_start; …
#
# Inside: $RIG (scratch directory, removed at the end), $BUILD (build/release unless set), SBX_* settings of
# the instance exported. Functions print nothing unless they fail.

rig_die() { echo "rig: $*" >&2; exit 1; }

# Waits until a command succeeds: rig_wait SECONDS COMMAND…
rig_wait() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		sleep 0.05
	done
}

# Starts this script again inside the rig. Process 1 there is a bash, which reaps.
rig_enter() {
	RIG_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
	BUILD=${BUILD:-$RIG_ROOT/build/release}
	if [[ -z ${RIG_INSIDE:-} ]]; then
		((EUID == 0)) || rig_die "must be root"
		RIG=$(mktemp -d "${TMPDIR:-/tmp}/sbx-rig.XXXXXX")
		export RIG RIG_INSIDE=1 BUILD
		local rc=0
		unshare --mount --net --pid --fork --kill-child --mount-proc -- bash "$0" "$@" || rc=$?
		rm -rf --one-file-system "$RIG"
		exit $rc
	fi
	unset RIG_INSIDE
	rig_private
	rig_settings
}

# What the daemons write is private; what they read of the system stays.
rig_private() {
	local dir
	mount --make-rprivate /
	chmod 0711 "$RIG"
	mkdir -p "$RIG"/{etc-libvirt,cache-libvirt,state,log}
	cp -a /etc/libvirt/. "$RIG/etc-libvirt/"
	cp -a /var/cache/libvirt/. "$RIG/cache-libvirt/" 2>/dev/null || true
	mount -t tmpfs -o mode=0755 tmpfs /run
	for dir in /var/lib/libvirt /var/log/libvirt; do
		mkdir -p "$dir"
		mount -t tmpfs -o mode=0755 tmpfs "$dir"
	done
	mount --bind "$RIG/etc-libvirt" /etc/libvirt
	mount --bind "$RIG/cache-libvirt" /var/cache/libvirt
	mkdir -p /run/lock /run/libvirt
	# As udev does it; otherwise libvirt throws its knowledge of QEMU away at every call.
	if [[ -c /dev/kvm ]]; then
		mknod "$RIG/kvm" c 10 232
		chgrp kvm "$RIG/kvm"
		chmod 0660 "$RIG/kvm"
		mount --bind "$RIG/kvm" /dev/kvm
	fi
	ip link set lo up
}

# Images come from an installation, or from where SBX_RIG_IMAGES says; they are only read.
rig_settings() {
	export SBX_INSTANCE=rig SBX_INSTANCE_TAG=r0 SBX_HOST_NAME=righost SBX_CONFIG=/dev/null
	export SBX_STATE_DIR=$RIG/state SBX_RUN_DIR=/run/sbx SBX_MASTER_KEY_FILE=$RIG/master.key
	export SBX_DB="host=$RIG/pg dbname=sbx" SBX_BOX_CIDR=100.64.0.0/16 SBX_UID_BASE=900000
	mkdir -p "$SBX_RUN_DIR" "$SBX_STATE_DIR/images"
	chmod 0711 "$SBX_STATE_DIR"
	(umask 077; printf '1 %s\n' "$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')" >"$SBX_MASTER_KEY_FILE")
	if [[ -d ${SBX_RIG_IMAGES:=/var/lib/sbx/images} ]]; then
		mount --bind "$SBX_RIG_IMAGES" "$SBX_STATE_DIR/images"
	fi
}

# libvirt

rig_libvirtd() {
	"$BUILD/sbx-keeper" --reap /usr/sbin/libvirtd >>"$RIG/log/libvirtd" 2>&1 &
	RIG_LIBVIRT_REAPER=$!
	rig_wait 30 virsh -c qemu:///system uri || rig_die "libvirtd does not answer: $(tail -n 3 "$RIG/log/libvirtd")"
}

rig_libvirt_start() {
	cat >>/etc/libvirt/libvirtd.conf <<-CONF
		unix_sock_group = "libvirt"
		unix_sock_rw_perms = "0770"
		auth_unix_rw = "none"
	CONF
	/usr/sbin/virtlogd -d
	rig_libvirtd
	# Its first knowledge of QEMU takes seconds that no measured call should pay.
	virsh -c qemu:///system domcapabilities --virttype qemu --arch x86_64 >/dev/null
}

rig_libvirt_stop() {
	local id
	for id in $(virsh -c qemu:///system list --uuid 2>/dev/null); do
		virsh -c qemu:///system destroy "$id" >/dev/null 2>&1 || true
	done
	[[ -z ${RIG_LIBVIRT_REAPER:-} ]] || kill "$RIG_LIBVIRT_REAPER" 2>/dev/null || true
	[[ ! -e /run/virtlogd.pid ]] || kill "$(cat /run/virtlogd.pid)" 2>/dev/null || true
}

# PostgreSQL

rig_pg_start() {
	"$RIG_ROOT/tests/it/pg" start "$RIG/pg"
	chmod 0711 "$RIG/pg"
	rig_sql -d postgres -f "$RIG_ROOT/sql/roles.sql" -c 'create database sbx owner sbx_owner'
	"$BUILD/sbx" migrate --dir "$RIG_ROOT/sql" >/dev/null
}

rig_pg_stop() { "$RIG_ROOT/tests/it/pg" stop "$RIG/pg"; }

# psql as superuser: unaligned, tuples only. rig_sql -c 'select …'
rig_sql() { psql -qXAt -h "$RIG/pg" -U postgres -d sbx -v ON_ERROR_STOP=1 "$@"; }

# Registers the image units that are current in the database.
rig_images_register() {
	local unit
	for unit in "$SBX_STATE_DIR"/images/current/*/; do
		"$BUILD/sbx" image add "$(readlink -f "$unit")" >/dev/null
	done
}

# The keeper that the caller started; its process id is in RIG_KEEPER.
rig_keeper_stop() {
	kill "$RIG_KEEPER" 2>/dev/null || true
	wait "$RIG_KEEPER" 2>/dev/null || true
}

# Network

# The world outside: namespace "outside" behind a veth, with addresses of networks that boxes may not reach
# and one that they may (203.0.113.80). It has a way back to boxes, so that only the rules stop them.
RIG_FORBIDDEN="10.1.2.3 172.16.5.5 192.168.7.7 169.254.169.254 100.100.1.1"
RIG_PUBLIC=203.0.113.80
rig_outside_start() {
	local address
	ip netns add outside
	ip link add rigw type veth peer name out0 netns outside
	ip addr add 198.51.100.1/24 dev rigw
	ip addr add fd00:5b::1/64 dev rigw nodad
	ip link set rigw up
	ip -n outside addr add 198.51.100.2/24 dev out0
	ip -n outside addr add fd00:5b::2/64 dev out0 nodad
	ip -n outside link set out0 up
	ip -n outside link set lo up
	for address in $RIG_FORBIDDEN $RIG_PUBLIC; do
		ip -n outside addr add "$address/32" dev lo
	done
	ip -n outside addr add fd00:ec2::254/128 dev lo nodad
	ip -n outside route add "$SBX_BOX_CIDR" via 198.51.100.1
	ip route add default via 198.51.100.2
	ip -6 route add default via fd00:5b::2
}

# A canary that answers "canary" over TCP: rig_canary NETNS-or-"" ADDRESS PORT
rig_canary() {
	local at=() family=TCP4 address=$2
	[[ -z $1 ]] || at=(ip netns exec "$1")
	[[ $2 != *:* ]] || { family=TCP6; address="[$2]"; }
	"${at[@]}" socat "$family-LISTEN:$3,bind=$address,fork,reuseaddr" SYSTEM:'echo canary' 2>/dev/null &
}
