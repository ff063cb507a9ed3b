# The rig's surroundings, made inside fresh mount, network and process id namespaces.

# Everything that up writes is private: copies of /etc, empty /run and state on memory, the images shared.
rig_mounts() {
	mount --make-rprivate /
	mount -t tmpfs -o mode=0755 rig-etc /mnt
	cp -a /etc/. /mnt/
	mount --move /mnt /etc
	mount -t tmpfs -o mode=0755 rig-run /run
	mount -t tmpfs -o mode=1777 rig-tmp /tmp
	mkdir -p /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /var/lib/sbx-rig
	mount -t tmpfs -o mode=0755 rig-libvirt /var/lib/libvirt
	mount -t tmpfs -o mode=0755 rig-cache /var/cache/libvirt
	mount -t tmpfs -o mode=0755 rig-log /var/log/libvirt
	mount -t tmpfs -o mode=0755,size=12g rig-state /var/lib/sbx-rig
	ln -s /var/lib/sbx/images /var/lib/sbx-rig/images
	ln -s /var/lib/sbx/cache /var/lib/sbx-rig/cache
	# Rights that libvirt's packages give; the folders themselves are new.
	install -d -m 0751 /var/lib/libvirt/qemu /var/cache/libvirt/qemu /var/log/libvirt/qemu
}

# An outside that answers where boxes must not get through, and where they must.
rig_network() {
	ip link set lo up
	ip netns add outside
	ip link add up0 type veth peer name down0
	ip link set down0 netns outside
	ip addr add 198.51.100.2/30 dev up0
	ip addr add 2001:db8:51::2/64 dev up0 nodad
	ip link set up0 up
	ip route add default via 198.51.100.1
	ip -6 route add default via 2001:db8:51::1
	local address
	ip -n outside link set lo up
	ip -n outside addr add 198.51.100.1/30 dev down0
	ip -n outside addr add 2001:db8:51::1/64 dev down0 nodad
	ip -n outside link set down0 up
	for address in 192.31.196.10/32 10.66.0.1/32 172.20.0.1/32 192.168.77.1/32 169.254.169.254/32; do
		ip -n outside addr add "$address" dev lo
	done
	ip -n outside addr add fd00:ec2::254/128 dev lo nodad
	# Replies to boxes that got out unmasked find their way back, so that a leak shows.
	ip -n outside route add 100.64.0.0/10 via 198.51.100.2
	ip -n outside -6 route add fd99::/16 via 2001:db8:51::2
	ip -n outside route add default via 198.51.100.2
	# Names, and a canary on every address: whoever connects to port 80 reads "canary".
	ip netns exec outside dnsmasq --conf-file=/dev/null --no-resolv --no-hosts --pid-file=/run/outside-dns.pid \
		--listen-address=198.51.100.1 --bind-interfaces --address=/public.test/192.31.196.10 \
		--address=/rebind.test/10.66.0.1 --user=root
	ip netns exec outside socat TCP6-LISTEN:80,ipv6only=0,fork,reuseaddr SYSTEM:'echo canary outside' &
}
