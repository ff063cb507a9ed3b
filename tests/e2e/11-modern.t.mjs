// The 2026 era on the same URL: metadata on every request, mirrored headers, cancellation by disconnect.
import test, { before, after } from 'node:test';
import assert from 'node:assert/strict';
import { connect, call, post, sql, until } from './lib.mjs';

const V = '2026-07-28';
const meta = { 'io.modelcontextprotocol/protocolVersion': V, 'io.modelcontextprotocol/clientCapabilities': {} };
const body = (method, params = {}, _meta = meta) => ({ jsonrpc: '2.0', id: 'm', method, params: { ...params, _meta } });
const headers = (method, name) => ({ 'MCP-Protocol-Version': V, 'Mcp-Method': method, ...(name ? { 'Mcp-Name': name } : {}) });
const modern = (method, params = {}, more = {}) => post(body(method, params), { ...headers(method, params.name), ...more });

const rows = [
	['server/discover', () => modern('server/discover'), 200, (j) => {
		assert.equal(j.result.resultType, 'complete');
		assert.equal(j.result.supportedVersions[0], V);
		assert.ok(Number.isInteger(j.result.ttlMs) && j.result.cacheScope === 'public');
		assert.equal(j.result._meta['io.modelcontextprotocol/serverInfo'].name, 'sbx');
	}],
	['tools/list', () => modern('tools/list'), 200, (j) => { assert.equal(j.result.tools.length, 6); assert.equal(j.result.resultType, 'complete'); }],
	['tools/call', () => modern('tools/call', { name: 'sandbox_environments', arguments: {} }), 200, (j) => {
		assert.equal(j.result.resultType, 'complete');
		assert.deepEqual(JSON.parse(j.result.content[0].text), j.result.structuredContent);
	}],
	['Mcp-Name in base64', () => modern('tools/call', { name: 'sandbox_environments' },
		{ 'Mcp-Name': `=?base64?${Buffer.from('sandbox_environments').toString('base64')}?=` }), 200],
	['Mcp-Name in bad base64', () => modern('tools/call', { name: 'sandbox_environments' }, { 'Mcp-Name': '=?base64?c2FuZA?=' }), 400, -32020],
	['wrong Mcp-Name', () => modern('tools/call', { name: 'sandbox_environments' }, { 'Mcp-Name': 'sandbox_stop' }), 400, -32020],
	['no Mcp-Method', () => post(body('tools/list'), { 'MCP-Protocol-Version': V }), 400, -32020],
	['wrong Mcp-Method', () => post(body('tools/list'), { 'MCP-Protocol-Version': V, 'Mcp-Method': 'Tools/list' }), 400, -32020],
	['no version header', () => post(body('tools/list'), { 'Mcp-Method': 'tools/list' }), 400, -32020],
	['header without metadata', () => post({ jsonrpc: '2.0', id: 'm', method: 'tools/list' }, headers('tools/list')), 400, -32602],
	['no capabilities', () => post(body('tools/list', {}, { 'io.modelcontextprotocol/protocolVersion': V }), headers('tools/list')), 400, -32602],
	['unknown version', () => post(body('tools/list', {}, { ...meta, 'io.modelcontextprotocol/protocolVersion': '2030-01-01' }),
		{ ...headers('tools/list'), 'MCP-Protocol-Version': '2030-01-01' }), 400, (j) => {
		assert.equal(j.error.code, -32022);
		assert.equal(j.error.data.requested, '2030-01-01');
		assert.ok(j.error.data.supported.includes(V));
	}],
	...['initialize', 'ping', 'logging/setLevel', 'nope', 'subscriptions/listen'].map((m) => [`${m} is gone`, () => modern(m), 404, -32601]),
	['unknown tool', () => modern('tools/call', { name: 'nope' }), 200, -32602],
	['a notification', () => post({ jsonrpc: '2.0', method: 'notifications/x', params: { _meta: meta } }, headers('notifications/x')), 202],
];
for (const [title, send, status, check] of rows)
	test(`2026: ${title}`, async () => {
		const r = await send(), text = await r.text();
		assert.equal(r.status, status, text);
		if (text) {
			const j = JSON.parse(text);
			assert.equal(j.id, 'm');
			if (typeof check === 'number')
				assert.equal(j.error.code, check, text);
			else
				check?.(j);
		}
	});

let client, box;
before(async () => {
	client = await connect();
	box = await call(client, 'sandbox_start', { environment: 'base' });
});
after(async () => {
	await call(client, 'sandbox_stop', { id: box.id });
	await client.close();
});

function abortable(name, args, more = {}) {
	const stop = new AbortController();
	const params = { name, arguments: args };
	const done = fetch(`${process.env.SBX_URL}/mcp`, { method: 'POST', signal: stop.signal, body: JSON.stringify(more.legacy ? { jsonrpc: '2.0', id: 1, method: 'tools/call', params } : body('tools/call', params)),
		headers: { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', Authorization: `Bearer ${process.env.SBX_API_KEY}`,
			...(more.legacy ? {} : headers('tools/call', name)) } }).then((r) => r.text()).catch(() => 'aborted');
	return { stop: () => stop.abort(), done };
}
const sleeping = async (n) => (await call(client, 'sandbox_exec', { id: box.id, cmd: `pgrep -fc '^sleep ${n}$'` })).stdout.trim() === '1';

test('2026: a client that goes away ends its command', async () => {
	const c = abortable('sandbox_exec', { id: box.id, cmd: 'sleep 777' });
	await until(() => sleeping(777));
	c.stop();
	await until(async () => !(await sleeping(777)), 15000, 'the command is ended');
	assert.equal(await c.done, 'aborted');
});

test('2025: it does not', async () => {
	const c = abortable('sandbox_exec', { id: box.id, cmd: 'sleep 778' }, { legacy: true });
	await until(() => sleeping(778));
	c.stop();
	await c.done;
	// Later calls were served meanwhile, so the disconnect has been seen.
	for (let i = 0; i < 5; i++)
		assert.equal(await sleeping(778), true);
	await call(client, 'sandbox_exec', { id: box.id, cmd: "pkill -f '^sleep 778$'" });
});

test('2026: a caller that drops while starting leaves no box', async () => {
	const before = Number(sql('select count(*) from admin.boxes'));
	const c = abortable('sandbox_start', { environment: 'base' });
	await until(() => Number(sql('select count(*) from admin.boxes')) === before + 1);
	c.stop();
	await c.done;
	await until(() => sql(`select count(*) from admin.boxes where state not in ('terminated', 'interrupted') and id <> '${box.id}'`) === '0', 30000);
});
