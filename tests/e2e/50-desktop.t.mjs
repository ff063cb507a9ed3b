// The default environment: a display with a browser, and Docker, which does what it likes to the network.
import test, { before, after } from 'node:test';
import assert from 'node:assert/strict';
import { connect, call, until } from './lib.mjs';

let client, box;
const exec = (cmd, timeoutSec = 120) => call(client, 'sandbox_exec', { id: box.id, cmd, timeoutSec }, 500000);

before(async () => {
	client = await connect();
	box = await call(client, 'sandbox_start', {});
});
after(async () => {
	await call(client, 'sandbox_stop', { id: box.id });
	await client.close();
});

test('the default is desktop', async () => {
	const s = await call(client, 'sandbox_status', { id: box.id });
	assert.equal(s.environment, 'desktop');
	assert.equal(s.memoryMib, 2048);
	assert.equal(s.vcpu, 2);
	assert.equal(s.diskGib, 20);
});

test('the display answers on :99, and Chromium opens a window on it', async () => {
	await until(async () => (await exec('DISPLAY=:99 xdotool getdisplaygeometry')).exitCode === 0, 60000);
	await exec(`cd /tmp; echo '<title>hello box</title>' > p.html
		DISPLAY=:99 setsid chromium --no-sandbox --no-first-run --disable-gpu --disable-background-networking --disable-component-update --disable-sync --user-data-dir=/tmp/chromium /tmp/p.html >/tmp/chromium.log 2>&1 &`);
	// Waits in the box: a process a look would slow the browser down.
	const w = await exec('export DISPLAY=:99; until xdotool search --name "hello box"; do sleep 2; done', 400);
	assert.equal(w.exitCode, 0, (await exec('tail -n 20 /tmp/chromium.log')).stdout);
	const shot = await exec('ffmpeg -loglevel error -f x11grab -i :99 -frames:v 1 -y /tmp/shot.png; stat -c %s /tmp/shot.png');
	assert.ok(Number(shot.stdout) > 1000, shot.stderr);
	await exec('pkill chromium');
});

test('Docker runs a container, and boxd stays reachable', async () => {
	await until(async () => (await exec('docker info >/dev/null 2>&1')).exitCode === 0, 120000);
	// An image of one program and the libraries it needs, made of the box's own files.
	const r = await exec(`mkdir -p /tmp/rootfs && cd /tmp/rootfs && cp --parents -L /bin/echo $(ldd /bin/echo | grep -o '/[^ ]*') . &&
		tar -c . | docker import - tiny >/dev/null && docker run --rm tiny /bin/echo from a container`, 300);
	assert.equal(r.stdout, 'from a container\n', r.stderr);
	assert.equal((await exec('docker compose version >/dev/null && docker network create x >/dev/null && echo ok')).stdout, 'ok\n');
	assert.equal((await call(client, 'sandbox_status', { id: box.id })).health.ok, true);
});
