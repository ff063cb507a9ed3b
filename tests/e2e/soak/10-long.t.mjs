// Calls that last longer than what proxies and HTTP stacks allow a silent connection: 90 s and 330 s.
import test, { before, after } from 'node:test';
import assert from 'node:assert/strict';
import { connect, call, post, rpc } from '../lib.mjs';

let client, box;
before(async () => {
	client = await connect();
	box = await call(client, 'sandbox_start', { environment: 'base' });
});
after(async () => {
	await call(client, 'sandbox_stop', { id: box.id });
	await client.close();
});

test('a call of 90 s through nginx is answered', async () => {
	const r = await call(client, 'sandbox_exec', { id: box.id, cmd: 'sleep 90; echo late' }, 200000);
	assert.equal(r.stdout, 'late\n');
});

test('a call of 330 s is answered, and never silent for 16 s', async () => {
	const response = await post(rpc('tools/call', { name: 'sandbox_exec', arguments: { id: box.id, cmd: 'sleep 330; echo later' } }));
	let last = Date.now(), longest = 0, text = '';
	for await (const piece of response.body) {
		longest = Math.max(longest, Date.now() - last);
		last = Date.now();
		text += Buffer.from(piece).toString();
	}
	assert.ok(longest < 16000, `${longest} ms of silence`);
	assert.equal(JSON.parse(text.match(/data: (.*)\n\n$/)[1]).result.structuredContent.stdout, 'later\n');
});
