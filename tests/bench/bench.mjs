// The bars of speed, each a test: what is measured, what it is held against, and the ratio.
import test, { before, after } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, call, key, mcp, sh, until } from '../e2e/lib.mjs';

const rounds = 5;
const quantile = (list, q) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * q))];
const median = (list) => quantile(list, 0.5);
const ms = async (fn) => { const t = process.hrtime.bigint(); await fn(); return Number(process.hrtime.bigint() - t) / 1e6; };
const logged = (evt, field, also = '') => readFileSync(`${process.env.SBX_STATE}/log/keeper.log`, 'utf8').split('\n')
	.filter((l) => l.includes(`evt=${evt} `) && l.includes(also)).map((l) => Number(l.match(new RegExp(` ${field}=(\\d+)`))?.[1])).filter((n) => n >= 0);

let client;
before(async () => { client = await connect(); });
after(() => client.close());

test('start and destroy', async () => {
	const toExec = [];
	for (let i = 0; i < rounds; i++) {
		let box;
		toExec.push(await ms(async () => {
			box = await call(client, 'sandbox_start', { environment: 'base' });
			await call(client, 'sandbox_exec', { id: box.id, cmd: 'true' });
		}));
		await call(client, 'sandbox_stop', { id: box.id });
		await until(async () => (await call(client, 'sandbox_status', { id: box.id })).state === 'terminated');
	}
	// The first two of the log belong to scripts/up, which shares the machine with what it has just started.
	const boot = logged('machine.answers', 'boot_ms').slice(-rounds);
	const stops = logged('op.done', 'dur_ms', 'verb=stop').slice(-rounds);
	console.error(`virDomainCreateXML -> first answer of boxd: p50 ${median(boot)} ms (bar 1900); all: ${boot.join(' ')}`);
	console.error(`cold start -> first exec answered: p50 ${median(toExec).toFixed(0)} ms (bar: that + 400); all: ${toExec.map((x) => x.toFixed(0)).join(' ')}`);
	console.error(`destroy, all of the op: p50 ${median(stops)} ms (bar 500)`);
	assert.ok(median(boot) <= 1900);
	assert.ok(median(toExec) <= median(boot) + 400);
	assert.ok(median(stops) <= 500);
});

const loop = `#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int main(int c, char **v) { struct timespec a, b; int n = atoi(v[1]); clock_gettime(CLOCK_MONOTONIC, &a);
for (int i = 0; i < n; i++) { pid_t p = fork(); if (!p) { execv(v[2], v + 2); _exit(127); } waitpid(p, NULL, 0); }
clock_gettime(CLOCK_MONOTONIC, &b); printf("%.3f\\n", ((b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6) / n); return c < 0; }`;

test('exec of true beside fork+exec of it in the box', async () => {
	const box = await call(client, 'sandbox_start', { environment: 'base' });
	const exec = (cmd) => call(client, 'sandbox_exec', { id: box.id, cmd });
	await exec(`cat > /tmp/l.c <<'EOT'\n${loop}\nEOT\ngcc -O2 -o /tmp/l /tmp/l.c`);
	const ours = [], bash = [], plain = [];
	for (let i = 0; i < rounds; i++) {
		bash.push(Number((await exec('/tmp/l 40 /bin/bash -c true')).stdout));
		plain.push(Number((await exec('/tmp/l 40 /bin/true')).stdout));
		const each = [];
		for (let k = 0; k < 40; k++)
			each.push(await ms(() => exec('true')));
		ours.push(median(each));
	}
	const [o, b, p] = [median(ours), median(bash), median(plain)];
	console.error(`exec of true: ${o.toFixed(1)} ms; fork+exec of "bash -c true" in the box: ${b.toFixed(1)} ms, of /bin/true: ${p.toFixed(1)} ms`);
	console.error(`(exec - 5 ms) / fork+exec of what exec runs: ${((o - 5) / b).toFixed(2)} (bar 1.20)`);
	await call(client, 'sandbox_stop', { id: box.id });
	assert.ok(o <= 1.2 * b + 5);
});

test('200 parked calls beside an idle worker', async () => {
	const boxes = await Promise.all([1, 2, 3, 4].map(() => call(client, 'sandbox_start', { environment: 'base' })));
	const worker = sh('pgrep -P $(cat $SBX_RUN/worker.child)');
	assert.match(worker, /^\d+$/, 'one worker process');
	const memory = () => Number(readFileSync(`/proc/${worker}/status`, 'utf8').match(/VmRSS:\s+(\d+)/)[1]) / 1024;
	writeFileSync('/tmp/list.lua', `wrk.method = "POST"; wrk.body = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
wrk.headers["Content-Type"] = "application/json"; wrk.headers["Accept"] = "application/json"; wrk.headers["Authorization"] = "Bearer ${key}"
local bad = 0
function response(status, headers, body) if status ~= 200 or not body:find('"sandbox_exec"', 1, true) then bad = bad + 1 end end
function done(summary, latency) io.write(string.format("p99 %.3f n %d errors %d\\n", latency:percentile(99) / 1000, summary.requests,
	summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout)) end`);
	const p99 = () => {
		const m = sh(`wrk -t1 -c2 -d4 -s /tmp/list.lua ${mcp}`).match(/p99 ([\d.]+) n (\d+) errors (\d+)/);
		assert.equal(m[3], '0');
		return Number(m[1]);
	};
	p99();
	const idle = [p99(), p99(), p99()];
	const before = memory();
	const parked = boxes.flatMap((b) => Array.from({ length: 50 }, () =>
		call(client, 'sandbox_exec', { id: b.id, cmd: 'sleep 60; echo woke' }, 400000)));
	await until(async () => {
		const counts = await Promise.all(boxes.map((b) => call(client, 'sandbox_exec', { id: b.id, cmd: 'pgrep -xc sleep' })));
		return counts.every((c) => Number(c.stdout) === 50);
	}, 55000, '200 commands sleep');
	const busy = [p99(), p99(), p99()];
	const with200 = memory();
	console.error(`tools/list p99: idle ${median(idle).toFixed(2)} ms, with 200 parked calls ${median(busy).toFixed(2)} ms; ratio ${(median(busy) / median(idle)).toFixed(2)} (bar 2.00)`);
	console.error(`memory of the worker process: ${before.toFixed(1)} MiB idle, ${with200.toFixed(1)} MiB with 200 parked calls (bar 100)`);
	for (const r of await Promise.all(parked))
		assert.equal(r.stdout, 'woke\n');
	await Promise.all(boxes.map((b) => call(client, 'sandbox_stop', { id: b.id })));
	assert.ok(median(busy) < 2 * median(idle));
	assert.ok(with200 < 100);
});
