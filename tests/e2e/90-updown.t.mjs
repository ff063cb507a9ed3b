// scripts/up again, and scripts/down: what is right stays, what is others' stays, what was changed is restored.
// Runs last: the instance is gone afterwards.
import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { connect, call, sh, until } from './lib.mjs';

const env = `${process.env.SBX_CONFIG.replace('sbx.conf', 'client.env')}`;
const up = 'unset SBX_CONFIG SBX_APP SBX_STATE SBX_RUN SBX_TAG SBX_URL SBX_API_KEY; scripts/up 2>&1';
let client, box;

test('up again: fast, and what runs goes on', async () => {
	client = await connect();
	box = await call(client, 'sandbox_start', { environment: 'base' });
	const slow = call(client, 'sandbox_exec', { id: box.id, cmd: 'sleep 8; echo through' });
	const before = [readFileSync(env, 'utf8'), sh('cat $SBX_RUN/{postgres,keeper,worker,nginx}.child'), sh('sha256sum $SBX_CONFIG')];
	const began = Date.now();
	const out = sh(up, { timeout: 120000 });
	const seconds = (Date.now() - began) / 1000;
	assert.match(out, /job: stop it/);
	assert.match(out, /claude mcp add/);
	assert.ok(seconds <= 20, `${seconds} s`);
	assert.deepEqual([readFileSync(env, 'utf8'), sh('cat $SBX_RUN/{postgres,keeper,worker,nginx}.child'), sh('sha256sum $SBX_CONFIG')], before);
	assert.equal(sh(`stat -c %a ${env}`), '600');
	assert.equal((await slow).stdout, 'through\n');
});

test('down: ends what is ours, leaves what is not, restores what was changed', async () => {
	sh('nft add table inet foreign');
	sh(`cat > /tmp/foreign.xml <<'EOT'
<domain type='qemu'><name>foreign</name><memory unit='MiB'>32</memory><os><type arch='x86_64' machine='q35'>hvm</type></os></domain>
EOT
		virsh -q define /tmp/foreign.xml`);
	const forward = sh('cat /proc/sys/net/ipv4/ip_forward');
	assert.equal(forward, '1');
	await client.close().catch(() => {});
	sh('unset SBX_CONFIG SBX_APP; scripts/down', { timeout: 90000 });
	assert.equal(sh('cat /proc/sys/net/ipv4/ip_forward'), '0');
	assert.equal(sh('nft list tables'), 'table inet foreign');
	assert.equal(sh("ip -o link | grep -c ' srg' || true"), '0');
	await until(() => sh('ps -eo comm= | grep -cxE "qemu-system-x86|sbx-worker|sbx-keeper|nginx|postgres|libvirtd|virtlogd" || true') === '0', 20000, 'no process is left');
	assert.equal(sh('ls /etc/libvirt/qemu/foreign.xml'), '/etc/libvirt/qemu/foreign.xml');
	// Data is kept: up brings the same instance back, with its keys; the box that ran was ended, and it says so.
	sh(up, { timeout: 120000 });
	client = await connect();
	assert.equal((await call(client, 'sandbox_status', { id: box.id })).state, 'terminated');
	await client.close();
});

test('down --purge removes all of it', () => {
	sh('unset SBX_CONFIG SBX_APP; scripts/down --purge', { timeout: 90000 });
	assert.equal(sh('ls -d $SBX_STATE/* /etc/sbx-rig $SBX_RUN 2>/dev/null || true'), '');
});
