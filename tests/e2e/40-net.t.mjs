// What boxes can reach. Every place that must be out of reach has a canary that answers as soon as the table of
// rules is taken away, so a test that passes because nobody would have answered cannot happen.
import test, { before, after } from 'node:test';
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { connect, call, sh, sql, until } from './lib.mjs';

const table = `sbx_${process.env.SBX_TAG}`;
let client, a, b;
const exec = (id, cmd) => call(client, 'sandbox_exec', { id, cmd, timeoutSec: 120 });

// Listens on every address of a box, v4 and v6, and says who it is to whoever connects.
const server = `import socket
s = socket.create_server(("::", 80), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    c, _ = s.accept(); c.sendall(b"canary box"); c.close()
`;
// Connects to each target at once; prints those that answered.
const prober = `import socket, sys, threading, json
def probe(t):
    host, port = t.rsplit("/", 1)
    for _ in range(2):
        try:
            for f, k, p, _n, at in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM):
                with socket.socket(f, k, p) as s:
                    s.settimeout(4); s.connect(at)
                    if b"canary" in s.recv(200): hits.append(t)
                    return
        except OSError: pass
hits, ts = [], [threading.Thread(target=probe, args=(t,)) for t in sys.argv[1:]]
[t.start() for t in ts]; [t.join() for t in ts]
print(json.dumps(sorted(hits)))
`;
const put = (id, path, text) => exec(id, `cat > ${path} <<'EOT'\n${text}EOT`);
const probe = async (id, targets, prefix = '') =>
	JSON.parse((await exec(id, `${prefix} python3 /tmp/prober.py ${targets.map((t) => `'${t}'`).join(' ')}`)).stdout);

async function start() {
	const box = await call(client, 'sandbox_start', { environment: 'base' });
	const [machine, user, control, slot] = sql(`select m.id, host(m.user_address), host(m.control_address), m.slot
		from sbx.machines m join sbx.boxes b on b.machine_id = m.id where b.id = '${box.id}'`, 'sbx_owner').split('|');
	return { id: box.id, machine, user, control, tap: `s${process.env.SBX_TAG}u${slot}` };
}

before(async () => {
	client = await connect();
	[a, b] = await Promise.all([start(), start()]);
	// A canary of the host on all its addresses.
	sh(`setsid socat TCP6-LISTEN:9080,ipv6only=0,fork,reuseaddr SYSTEM:'echo canary host' >/dev/null 2>&1 & echo $! > /tmp/canary.pid`);
	for (const [box, n] of [[a, 'a'], [b, 'b']]) {
		// Routes for IPv6, as if it were offered: only the rules stand in the way.
		sh(`ip -6 route add fd99::${n}/128 dev ${box.tap}; sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.${box.tap}.disable_ipv6=0`);
		box.host6 = sh(`ip -6 -o addr show dev ${box.tap} scope link | grep -o 'fe80[0-9a-f:]*' | head -1`);
		await put(box.id, '/tmp/server.py', server);
		await put(box.id, '/tmp/prober.py', prober);
		await exec(box.id, `setsid python3 /tmp/server.py >/dev/null 2>&1 & sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.eth0.disable_ipv6=0
			ip -6 addr add fd99::${n}/128 dev eth0 nodad; ip -6 route add default via ${box.host6 || 'fe80::1'} dev eth0; true`);
	}
	await until(async () => (await exec(b.id, 'ss -ltn | grep -c ":80 "')).stdout.trim() === '1');
});
after(async () => {
	sh('kill $(cat /tmp/canary.pid)');
	await Promise.all([a, b].map((x) => call(client, 'sandbox_stop', { id: x.id })));
	await client.close();
});

const forbidden = () => [`${b.user}/80`, 'fd99::b/80', `${a.user.replace(/\d+$/, (n) => n - 1)}/9080`, '198.51.100.2/9080',
	`${a.host6}%eth0/9080`, '10.66.0.1/80', '172.20.0.1/80', '192.168.77.1/80', '169.254.169.254/80', 'fd00:ec2::254/80'];

test('the outside and names', async () => {
	assert.deepEqual(await probe(a.id, ['192.31.196.10/80', 'public.test/80']), ['192.31.196.10/80', 'public.test/80']);
	assert.equal(sh('ip netns exec outside true && echo ok'), 'ok');
});

test('names with private answers are refused', async () => {
	assert.notEqual((await exec(a.id, 'getent ahostsv4 rebind.test')).exitCode, 0);
});

test('nothing else answers', async () => {
	assert.ok(a.host6.startsWith('fe80'), 'the tap has a link-local address, so that a leak could show');
	assert.deepEqual(await probe(a.id, forbidden()), []);
});

test('boxd of another box, and of one\'s own, cannot be reached', async () => {
	const { stdout } = await exec(a.id, `for t in ${b.control} ${a.control} ${a.user}; do timeout 4 bash -c "</dev/tcp/$t/7080" 2>/dev/null && echo $t; done; true`);
	assert.equal(stdout, '');
});

test('root in a box who enters the control network gets nowhere', async () => {
	const enter = 'nsenter -t $(pgrep -xo boxd) -n';
	const host = a.control.replace(/\d+$/, (n) => n - 1);
	const setup = `${enter} sh -c 'ip route add default via ${host} onlink dev ctl0'; true`;
	await exec(a.id, setup);
	assert.deepEqual(await probe(a.id, [`${host}/9080`, '192.31.196.10/80', `${b.user}/80`, '10.66.0.1/80'], enter), []);
});

// UDP datagrams with a source that is not the box's; `outside` writes down who it heard from.
async function spoof() {
	sh(`rm -f /tmp/heard; setsid ip netns exec outside socat -u UDP4-RECVFROM:9999,fork SYSTEM:'echo $SOCAT_PEERADDR >> /tmp/heard' >/dev/null 2>&1 & echo $! > /tmp/spoof.pid`);
	await until(() => sh('ip netns exec outside ss -lun | grep -c :9999 || true') === '1');
	await exec(a.id, `ip addr add 10.66.0.99/32 dev lo; ip addr add ${b.user}/32 dev lo
		for s in 10.66.0.99 ${b.user} ${a.user}; do python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('$s', 0))
for i in range(3): s.sendto(b'x', ('192.31.196.10', 9999))"; done
		ip addr del 10.66.0.99/32 dev lo; ip addr del ${b.user}/32 dev lo`);
	// The box's own datagrams were sent last: once they are there, the spoofed ones would be too.
	await until(() => sh('cat /tmp/heard 2>/dev/null || true').match(/198\.51\.100\.2|^100\./m));
	const heard = [...new Set(sh('cat /tmp/heard').split('\n'))].sort();
	sh('kill $(cat /tmp/spoof.pid); rm -f /tmp/heard');
	return heard;
}

test('spoofed sources do not get out', async () => {
	assert.deepEqual(await spoof(), ['198.51.100.2']);
});

test('positive control: without the table all of it answers', async () => {
	writeFileSync('/tmp/table.nft', sh(`nft list table inet ${table}`) + '\n');
	sh(`nft delete table inet ${table}`);
	try {
		assert.deepEqual(await probe(a.id, forbidden()), forbidden().sort());
		assert.deepEqual(await spoof(), ['10.66.0.99', a.user, b.user].sort());
	} finally {
		sh('nft -f /tmp/table.nft');
	}
	assert.deepEqual(await probe(a.id, forbidden()), []);
});

test('nothing that the box does to its network cuts off boxd', async () => {
	await exec(b.id, 'iptables -P INPUT DROP; iptables -P OUTPUT DROP; iptables -P FORWARD DROP; ip route del default; ip link set eth0 down');
	assert.equal((await exec(b.id, 'echo still here')).stdout, 'still here\n');
	assert.equal((await call(client, 'sandbox_status', { id: b.id })).health.ok, true);
});
