// Real boxes: start, commands, results, isolation of tenants, limits, stop.
import test, { before, after } from 'node:test';
import assert from 'node:assert/strict';
import { connect, call, failing, leftovers, newTenant, post, rpc, sbx, sh, sql, until, key } from './lib.mjs';

let client, box;
const exec = (cmd, more = {}) => call(client, 'sandbox_exec', { id: box.id, cmd, ...more });

before(async () => {
	client = await connect();
	box = await call(client, 'sandbox_start', { environment: 'base', services: [{ name: 'web', port: 3000 }], idempotencyKey: 'one' });
});
after(async () => {
	await call(client, 'sandbox_stop', { id: box.id });
	await until(() => leftovers() === '', 20000, 'nothing is left after stop');
	await client.close();
});

test('start', () => {
	assert.match(box.id, /^b[a-z2-7]{26}$/);
	assert.equal(box.status, 'ready');
	assert.equal(box.startedFrom, 'cold');
	assert.equal(box.sceneUrl, null);
});

test('status', async () => {
	const s = await call(client, 'sandbox_status', { id: box.id });
	assert.equal(s.state, 'ready');
	assert.deepEqual(s.health, { ok: true, detail: null });
	assert.deepEqual(s.services, [{ name: 'web', port: 3000 }]);
	assert.equal(s.environment, 'base');
	assert.equal(s.memoryMib, 512);
});

test('the same idempotencyKey gives the same box', async () => {
	assert.equal((await call(client, 'sandbox_start', { environment: 'base', idempotencyKey: 'one' })).id, box.id);
});

test('a command: streams, code, surroundings', async () => {
	const r = await exec('echo out; echo err >&2; exit 3');
	assert.equal(r.stdout, 'out\n');
	assert.equal(r.stderr, 'err\n');
	assert.equal(r.exitCode, 3);
	assert.equal(r.timedOut, false);
	assert.equal(r.truncated, false);
	const env = await exec('id -un; pwd; echo $HOME $LANG; umask; cat | wc -c; test -t 0 || echo no tty; node --version; python3 -c "print(6*7)"');
	assert.match(env.stdout, /^root\n\/work\n\/root C.UTF-8\n0022\n0\nno tty\nv\d+.*\n42\n$/);
});

test('cwd, and one that is missing', async () => {
	await exec('mkdir -p /work/a/b');
	assert.equal((await exec('pwd', { cwd: 'a/b' })).stdout, '/work/a/b\n');
	assert.equal((await exec('pwd', { cwd: '/tmp' })).stdout, '/tmp\n');
	const text = await failing(client, 'sandbox_exec', { id: box.id, cmd: 'touch /work/never', cwd: 'no/such' });
	assert.match(text, /^invalid_argument: .*no\/such/);
	assert.equal((await exec('ls /work/never')).exitCode, 2);
});

test('a time-out ends all of it', async () => {
	const r = await exec('echo begun; setsid sleep 1000 & trap "" TERM; sleep 1000', { timeoutSec: 2 });
	assert.equal(r.exitCode, 124);
	assert.equal(r.timedOut, true);
	assert.equal(r.stdout, 'begun\n');
	assert.equal((await exec('pgrep -x sleep | wc -l')).stdout, '0\n');
});

test('what stays in the background does not hold the call', async () => {
	const r = await exec('sleep 300 & setsid sleep 301 & echo done');
	assert.equal(r.stdout, 'done\n');
	assert.ok(r.durationMs < 5000);
	assert.equal((await exec('pgrep -x sleep | wc -l; pkill -x sleep')).stdout, '2\n');
});

test('background commands and their result', async () => {
	const r = await exec('echo first; read -t 2 <> <(:) ; echo second; exit 7', { background: true });
	assert.equal(r.bgId, r.execId);
	assert.equal(r.exitCode, null);
	const running = await call(client, 'sandbox_result', { id: box.id, bgId: r.bgId });
	assert.equal(running.running, true);
	const end = await call(client, 'sandbox_result', { id: box.id, bgId: r.bgId, waitSec: 60 });
	assert.equal(end.running, false);
	assert.equal(end.exitCode, 7);
	assert.equal(end.stdout, 'first\nsecond\n');
	assert.equal((await exec(`cat ${r.stdoutFile}`)).stdout, 'first\nsecond\n');
	assert.match(await failing(client, 'sandbox_result', { id: box.id, execId: '0'.repeat(32) }), /^not_found: /);
});

test('odd bytes, odd characters', async () => {
	assert.equal((await exec('printf "a\\0b\\377\\342\\202c"')).stdout, 'a\u0000b\ufffd\ufffd\ufffdc');
	const r = await exec('for i in $(seq 1000); do printf "€漢🐟"; done');
	assert.equal(r.stdout, '€漢🐟'.repeat(1000));
});

test('300 KB command', async () => {
	const text = 'x'.repeat(300000);
	assert.equal((await exec(`cat <<'EOT' | wc -c\n${text}\nEOT`)).stdout, '300001\n');
});

test('64 MB of output: cut here, whole in the box', async () => {
	const r = await exec('head -c 64000000 /dev/zero | tr "\\0" y', { timeoutSec: 300 });
	assert.equal(r.exitCode, 0);
	assert.equal(r.truncated, true);
	assert.ok(r.stdout.length >= 1048575 && r.stdout.length <= 1048576);
	assert.equal((await exec(`wc -c < ${r.stdoutFile}; rm ${r.stdoutFile}`)).stdout, '64000000\n');
});

test('boxd killed: the command lives on and the call answers', async () => {
	const slow = exec('echo before; sleep 4; echo after');
	await until(async () => (await exec('pgrep -x sleep')).exitCode === 0);
	await exec('kill -9 $(pgrep -x boxd)').catch(() => {});
	const r = await slow;
	assert.equal(r.stdout, 'before\nafter\n');
	assert.equal(r.exitCode, 0);
	assert.equal((await exec('echo again')).stdout, 'again\n');
});

test('a long call becomes an event stream with signs of life', async () => {
	const began = Date.now();
	const response = await post(rpc('tools/call', { name: 'sandbox_exec', arguments: { id: box.id, cmd: 'sleep 4; echo late' } }));
	assert.match(response.headers.get('content-type'), /^text\/event-stream/);
	assert.equal(response.headers.get('content-encoding'), null);
	const headersAfter = Date.now() - began;
	const text = await response.text();
	assert.ok(headersAfter < 3500, `headers came after ${headersAfter} ms`);
	assert.ok(text.split(': ka\n\n').length >= 3, text);
	const data = text.match(/data: (.*)\n\n$/)[1];
	assert.equal(JSON.parse(data).result.structuredContent.stdout, 'late\n');
	const json = await post(rpc('tools/call', { name: 'sandbox_exec', arguments: { id: box.id, cmd: 'sleep 4; echo late' } }),
		{ Accept: 'application/json' });
	assert.match(json.headers.get('content-type'), /^application\/json/);
	assert.equal((await json.json()).result.structuredContent.stdout, 'late\n');
});

test('another tenant sees nothing of it', async () => {
	const other = await connect(newTenant('other'));
	for (const [tool, more] of [['sandbox_status', {}], ['sandbox_exec', { cmd: 'true' }], ['sandbox_stop', {}],
		['sandbox_result', { execId: '0'.repeat(32) }]]) {
		const theirs = await failing(other, tool, { id: box.id, ...more });
		const unknown = await failing(other, tool, { id: 'baaaaaaaaaaaaaaaaaaaaaaaaaa', ...more });
		assert.equal(theirs, unknown);
	}
	await other.close();
	assert.equal((await exec('echo alive')).stdout, 'alive\n');
});

test('parallel starts stop at the limit of the plan', async () => {
	const free = await connect(newTenant('limited', 'free'));
	const results = await Promise.allSettled([1, 2, 3, 4, 5, 6].map(() => call(free, 'sandbox_start', { environment: 'base' })));
	const ok = results.filter((r) => r.status === 'fulfilled').map((r) => r.value.id);
	const no = results.filter((r) => r.status === 'rejected').map((r) => r.reason.message);
	assert.equal(ok.length, 3, JSON.stringify(no));
	assert.equal(new Set(ok).size, 3);
	for (const text of no) {
		assert.match(text, /^limit_reached: .*"free" allows 3/);
		assert.ok(ok.some((id) => text.includes(id)));
	}
	await Promise.all(ok.map((id) => call(free, 'sandbox_stop', { id })));
	for (const id of ok)
		await until(async () => (await call(free, 'sandbox_status', { id })).state === 'terminated');
	await free.close();
});

test('stop: at once, twice, and what follows', async () => {
	const b = await call(client, 'sandbox_start', { environment: 'base' });
	await call(client, 'sandbox_stop', { id: b.id });
	await call(client, 'sandbox_stop', { id: b.id });
	await until(async () => (await call(client, 'sandbox_status', { id: b.id })).state === 'terminated');
	await call(client, 'sandbox_stop', { id: b.id });
	assert.match(await failing(client, 'sandbox_exec', { id: b.id, cmd: 'true' }), /^gone: .*stopped/);
	const events = sql(`select kind from admin.events where box_id = '${b.id}' order by id`).split('\n');
	assert.deepEqual(events, ['start_asked', 'ready', 'stop_asked', 'terminated']);
});

test('the machine under a box dies: interrupted, with the reason', async () => {
	const b = await call(client, 'sandbox_start', { environment: 'base' });
	const machine = sql(`select machine_id from admin.boxes where id = '${b.id}'`);
	const slow = client.callTool({ name: 'sandbox_exec', arguments: { id: b.id, cmd: 'sleep 100' } });
	await until(async () => (await call(client, 'sandbox_exec', { id: b.id, cmd: 'pgrep -x sleep' })).exitCode === 0);
	sh(`kill -9 $(pgrep -f '[q]emu-system.*${machine}')`);
	await until(async () => (await call(client, 'sandbox_status', { id: b.id })).state === 'interrupted', 40000);
	const s = await call(client, 'sandbox_status', { id: b.id });
	assert.equal(s.reasonCode, 'machine_lost');
	assert.ok(s.reason.length > 10);
	assert.match(await failing(client, 'sandbox_exec', { id: b.id, cmd: 'true' }), /^interrupted: /);
	const cut = await slow;
	assert.equal(cut.isError, true);
	assert.match(cut.content[0].text, /^(interrupted|uncertain|unavailable): /);
});

test('an operator sees and stops boxes', async () => {
	const b = await call(client, 'sandbox_start', { environment: 'base' });
	assert.ok(JSON.parse(sbx('box list --json')).some((x) => x.id === b.id));
	sbx(`box stop ${b.id}`);
	await until(async () => (await call(client, 'sandbox_status', { id: b.id })).state === 'terminated');
	assert.ok(sbx('host list').includes('tcg') || sbx('host list').includes('kvm'));
	assert.ok(key.startsWith('sbx_'));
});
