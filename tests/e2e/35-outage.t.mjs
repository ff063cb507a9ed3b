// PostgreSQL or libvirtd away: clear errors that say to retry, and everything recovers by itself.
import test, { before, after } from 'node:test';
import assert from 'node:assert/strict';
import { connect, call, failing, post, rpc, sh, until, url } from './lib.mjs';

let client, box;
before(async () => {
	client = await connect();
	box = await call(client, 'sandbox_start', { environment: 'base' });
});
after(async () => {
	await call(client, 'sandbox_stop', { id: box?.id ?? 'none' }).catch(() => {});
	await client.close();
});
const ready = () => fetch(`${url}/readyz`).then((r) => r.ok);

test('PostgreSQL stopped: 503, retryable; back: works', async () => {
	const slow = call(client, 'sandbox_exec', { id: box.id, cmd: 'sleep 6; echo lived' });
	await until(async () => (await call(client, 'sandbox_exec', { id: box.id, cmd: 'pgrep -x sleep' })).exitCode === 0);
	// The loop that keeps it running waits, so that it stays down.
	sh('kill -STOP $(cat $SBX_RUN/postgres.pid); kill -QUIT $(cat $SBX_RUN/postgres.child)');
	const response = await until(async () => {
		const r = await post(rpc('tools/call', { name: 'sandbox_status', arguments: { id: box.id } }));
		return r.status === 200 ? (await r.text(), null) : r;
	});
	assert.equal(response.status, 503);
	assert.equal(response.headers.get('retry-after'), '2');
	const body = await response.json();
	assert.deepEqual(body.error.data, { code: 'unavailable', retryable: true });
	const readyz = await fetch(`${url}/readyz`);
	assert.equal(readyz.status, 503);
	assert.equal((await readyz.json()).retryable, true);
	sh('kill -CONT $(cat $SBX_RUN/postgres.pid)');
	assert.equal((await slow).stdout, 'lived\n');
	await until(ready, 60000, 'ready after PostgreSQL is back');
	assert.equal((await call(client, 'sandbox_exec', { id: box.id, cmd: 'echo again' })).stdout, 'again\n');
});

test('libvirtd stopped: running boxes work, new ones are refused with a reason, it recovers', async () => {
	// Its reaper, which would start it again, waits meanwhile.
	sh('kill -STOP $(cat $SBX_RUN/libvirtd.child); kill -9 $(pgrep -x libvirtd)');
	await until(async () => !(await ready()), 60000, 'unready without libvirtd');
	const readyz = await (await fetch(`${url}/readyz`)).json();
	assert.match(readyz.detail, /libvirt/);
	assert.equal((await call(client, 'sandbox_exec', { id: box.id, cmd: 'echo here' })).stdout, 'here\n');
	const start = await post(rpc('tools/call', { name: 'sandbox_start', arguments: { environment: 'base' } }));
	assert.equal(start.status, 503);
	assert.equal((await start.json()).error.data.retryable, true);
	sh('kill -CONT $(cat $SBX_RUN/libvirtd.child)');
	await until(ready, 60000, 'ready after libvirtd is back');
	const other = await call(client, 'sandbox_start', { environment: 'base' });
	await call(client, 'sandbox_stop', { id: other.id });
});

test('no keeper: unready, and it says which host', async () => {
	assert.match(await failing(client, 'sandbox_exec', { id: box.id, cmd: 'true', cwd: 'nowhere' }), /^invalid_argument: /);
	sh('kill -STOP $(cat $SBX_RUN/keeper.child)');
	try {
		await until(async () => !(await ready()), 60000, 'unready without a keeper');
		assert.match((await (await fetch(`${url}/readyz`)).json()).detail, /keeper of rig/);
	} finally {
		sh('kill -CONT $(cat $SBX_RUN/keeper.child)');
	}
	await until(ready, 60000);
});
