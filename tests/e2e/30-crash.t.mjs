// Everything may be killed at any time. Ten kills (SBX_TEST_KILLS) at random points of starting and stopping
// a box, the seed printed (SBX_TEST_SEED repeats it); after reconcile nothing is orphaned and no running box
// is lost.
import test, { before, after } from 'node:test';
import assert from 'node:assert/strict';
import { connect, call, leftovers, sh, sql, until, url } from './lib.mjs';

const seed = Number(process.env.SBX_TEST_SEED ?? Date.now() % 1e9);
let state = seed;
/** mulberry32 (Tommy Ettinger, public domain): the same numbers for the same seed. */
function random() {
	state = (state + 0x6d2b79f5) | 0;
	let t = Math.imul(state ^ (state >>> 15), 1 | state);
	t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
	return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const pick = (list) => list[Math.floor(random() * list.length)];
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));

let client, kept;
before(async () => {
	console.error(`# seed ${seed}`);
	client = await connect();
	kept = await call(client, 'sandbox_start', { environment: 'base' });
	await call(client, 'sandbox_exec', { id: kept.id, cmd: 'echo precious > /work/file' });
});
after(() => client.close());

const victims = {
	worker: () => sh('kill -9 $(pgrep -P $(cat $SBX_RUN/worker.child))'), // the processes that serve; the parent replaces them
	workers: () => sh('kill -9 $(cat $SBX_RUN/worker.child)'),
	keeper: () => sh('kill -9 $(cat $SBX_RUN/keeper.child)'),
	libvirtd: () => sh('kill -9 $(pgrep -x libvirtd)'),
	boxd: () => call(client, 'sandbox_exec', { id: kept.id, cmd: 'kill -9 $(pgrep -x boxd)', timeoutSec: 20 }).catch(() => {}),
};

async function ready() {
	await until(async () => (await fetch(`${url}/readyz`).catch(() => ({ ok: false }))).ok, 60000, 'ready again');
}

/** Every call may be cut off by the kill; what it began must still come to one of its proper ends. */
async function lifeWithAKill(kill, whenMs) {
	const key = `crash-${Math.floor(random() * 1e12)}`;
	const begin = () => call(client, 'sandbox_start', { environment: 'base', idempotencyKey: key }, 60000);
	const starting = begin().catch((e) => e);
	await sleep(whenMs);
	await kill();
	let box = await starting;
	if (box instanceof Error) {
		await ready();
		box = await until(() => begin().catch((e) => (/start_failed|interrupted|gone/.test(e.message) ? { id: null } : null)), 90000, 'a start after the kill');
	}
	if (box.id === null)
		return 'failed';
	const r = await until(() => call(client, 'sandbox_exec', { id: box.id, cmd: 'echo ok', timeoutSec: 20 }).catch(() => null), 60000, 'exec after the kill');
	assert.equal(r.stdout, 'ok\n');
	return box.id;
}

async function stopWithAKill(id, kill, whenMs) {
	const stopping = call(client, 'sandbox_stop', { id }).catch((e) => e);
	await sleep(whenMs);
	await kill();
	await stopping;
	await ready();
	await until(() => call(client, 'sandbox_stop', { id }).catch(() => null), 60000, 'stop after the kill');
	await until(async () => (await call(client, 'sandbox_status', { id }).catch(() => ({}))).state === 'terminated', 60000, 'terminated');
}

const kills = Number(process.env.SBX_TEST_KILLS ?? 10);
for (let i = 1; i <= kills / 2; i++) {
	const [a, b] = [pick(Object.keys(victims)), pick(Object.keys(victims))];
	const [at, bt] = [Math.floor(random() * 3500), Math.floor(random() * 300)];
	test(`kill ${2 * i - 1}: ${a} ${at} ms into a start; kill ${2 * i}: ${b} ${bt} ms into the stop`, async () => {
		const id = await lifeWithAKill(victims[a], at);
		if (id !== 'failed')
			await stopWithAKill(id, victims[b], bt);
	});
}

test('afterwards: the running box has all it had', async () => {
	await ready();
	const r = await until(() => call(client, 'sandbox_exec', { id: kept.id, cmd: 'cat /work/file' }).catch(() => null), 30000);
	assert.equal(r.stdout, 'precious\n');
	assert.equal((await call(client, 'sandbox_status', { id: kept.id })).state, 'ready');
});

test('afterwards: no orphan domain, volume, tap, process or row', async () => {
	await call(client, 'sandbox_stop', { id: kept.id });
	await until(() => leftovers() === '', 60000).catch(() => assert.equal(leftovers(), ''));
	assert.equal(sql(`select count(*) from sbx.machines where state <> 'gone'`, 'sbx_owner'), '0');
	assert.equal(sql(`select count(*) from sbx.ops where state in ('queued', 'running')`, 'sbx_owner'), '0');
	assert.equal(sql(`select count(*) from sbx.box_runs where ended_at is null`, 'sbx_keeper'), '0');
	assert.equal(sql(`select count(*) from admin.boxes where state not in ('terminated', 'interrupted')`), '0');
});
