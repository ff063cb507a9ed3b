// The MCP endpoint, without a box: what clients of the 2025 era send, and what hostile ones do.
import test from 'node:test';
import assert from 'node:assert/strict';
import { connect, key, mcp, post, rpc, url, failing, call, sbx, newTenant } from './lib.mjs';

test('SDK 1.x connects, lists, pings', async () => {
	const client = await connect();
	assert.equal(client.getServerVersion().name, 'sbx');
	const { tools, nextCursor } = await client.listTools();
	assert.equal(nextCursor, undefined);
	assert.deepEqual(tools.map((t) => t.name), ['sandbox_start', 'sandbox_exec', 'sandbox_result', 'sandbox_status',
		'sandbox_stop', 'sandbox_environments']);
	for (const t of tools) {
		assert.equal(t.inputSchema.type, 'object');
		assert.ok(t.inputSchema.properties && !t.inputSchema.anyOf && !t.inputSchema.oneOf && !t.inputSchema.allOf);
		assert.equal(t.outputSchema.type, 'object');
	}
	await client.ping();
	const { environments } = await call(client, 'sandbox_environments');
	assert.ok(environments.some((e) => e.name === 'base' && e.memoryMib === 512 && e.vcpu === 1 && e.diskGib === 10));
	await client.close();
});

const rows = [
	// [title, init, status, check(response, text)]
	['GET is 405 before the key', { method: 'GET', headers: { Accept: 'text/event-stream', Authorization: '' } }, 405,
		(r) => { assert.equal(r.headers.get('allow'), 'POST'); assert.equal(r.headers.get('www-authenticate'), null); }],
	['DELETE is 405', { method: 'DELETE' }, 405],
	['no key', { headers: { Authorization: '' }, body: rpc('ping') }, 401,
		(r) => assert.match(r.headers.get('www-authenticate'), /^Bearer /)],
	['wrong key', { headers: { Authorization: `Bearer ${key.slice(0, -1)}${key.endsWith('A') ? 'B' : 'A'}` }, body: rpc('ping') }, 401],
	['not a key', { headers: { Authorization: 'Bearer x' }, body: rpc('ping') }, 401],
	['basic scheme', { headers: { Authorization: 'Basic eDp5' }, body: rpc('ping') }, 401],
	['foreign Origin', { headers: { Origin: 'https://evil.example' }, body: rpc('ping') }, 403],
	['text/plain', { headers: { 'Content-Type': 'text/plain' }, body: rpc('ping') }, 415],
	['charset is fine', { headers: { 'Content-Type': 'application/json; charset=utf-8' }, body: rpc('ping') }, 200],
	['malformed JSON', { body: '{"jsonrpc":' }, 400, (r, t) => assert.equal(JSON.parse(t).error.code, -32700)],
	['trailing junk', { body: '{"jsonrpc":"2.0","id":1,"method":"ping"}}' }, 400],
	['an array', { body: [rpc('ping')] }, 400, (r, t) => assert.equal(JSON.parse(t).error.code, -32600)],
	['a number', { body: '7' }, 400],
	['wrong jsonrpc', { body: { jsonrpc: '1.0', id: 1, method: 'ping' } }, 400],
	['id null', { body: '{"jsonrpc":"2.0","id":null,"method":"ping"}' }, 400],
	['id fractional', { body: '{"jsonrpc":"2.0","id":1.5,"method":"ping"}' }, 400],
	['id object', { body: '{"jsonrpc":"2.0","id":{},"method":"ping"}' }, 400],
	['no method', { body: { jsonrpc: '2.0', id: 1 } }, 400],
	['a notification', { body: { jsonrpc: '2.0', method: 'notifications/initialized' } }, 202,
		(r, t) => { assert.equal(t, ''); assert.equal(r.headers.get('content-length'), '0'); assert.equal(r.headers.get('content-type'), null); }],
	['an unknown notification', { body: { jsonrpc: '2.0', method: 'notifications/cancelled', params: {} } }, 202],
	['a response', { body: { jsonrpc: '2.0', id: 5, result: {} } }, 202],
	['unknown method', { body: rpc('nope') }, 200, (r, t) => assert.equal(JSON.parse(t).error.code, -32601)],
	['unknown tool', { body: rpc('tools/call', { name: 'nope' }) }, 200, (r, t) => assert.equal(JSON.parse(t).error.code, -32602)],
	['bad cursor', { body: rpc('tools/list', { cursor: 'x' }) }, 200, (r, t) => assert.equal(JSON.parse(t).error.code, -32602)],
	['unknown version', { headers: { 'MCP-Protocol-Version': '1900-01-01' }, body: rpc('tools/list') }, 400],
	['no version', { body: rpc('tools/list') }, 200],
	['initialize with any version header', { headers: { 'MCP-Protocol-Version': '2099-01-01' },
		body: rpc('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'x', version: '1' } }) }, 200,
		(r, t) => assert.equal(JSON.parse(t).result.protocolVersion, '2025-06-18')],
	['initialize with an unknown version', { body: rpc('initialize', { protocolVersion: '2026-07-28' }) }, 200,
		(r, t) => assert.equal(JSON.parse(t).result.protocolVersion, '2025-11-25')],
	['stale session', { headers: { 'Mcp-Session-Id': 'abc' }, body: rpc('ping') }, 200,
		(r, t) => { assert.equal(r.headers.get('mcp-session-id'), null); assert.equal(t, '{"jsonrpc":"2.0","id":1,"result":{}}'); }],
	['Accept */*', { headers: { Accept: '*/*' }, body: rpc('ping') }, 200],
	['Accept JSON alone', { headers: { Accept: 'application/json' }, body: rpc('ping') }, 200,
		(r) => assert.match(r.headers.get('content-type'), /^application\/json/)],
	['Accept events alone', { headers: { Accept: 'text/event-stream' }, body: rpc('ping') }, 200, (r, t) => {
		assert.match(r.headers.get('content-type'), /^text\/event-stream/);
		assert.equal(r.headers.get('cache-control'), 'no-cache, no-transform');
		assert.match(t, /^: ka\n\nevent: message\ndata: \{"jsonrpc":"2.0","id":1,"result":\{\}\}\n\n$/);
	}],
	['/mcp/ answers directly', { path: '/mcp/', body: rpc('ping') }, 200],
	['2 MiB body', { body: `{"x":"${'a'.repeat(2 << 20)}"}` }, 413, (r, t) => {
		assert.match(r.headers.get('content-type'), /json/);
		assert.equal(JSON.parse(t).code, 'too_large');
	}],
	['10 MiB body, refused by nginx', { body: 'a'.repeat(10 << 20) }, 413, (r, t) => {
		assert.equal(r.headers.get('content-type'), 'application/problem+json');
		assert.equal(JSON.parse(t).status, 413);
	}],
	['deep JSON', { body: '['.repeat(100000) }, 400],
	['many values', { body: `[${'0,'.repeat(400000)}0]` }, 400],
	['params not an object', { body: rpc('tools/call', [1]) }, 200, (r, t) => assert.equal(JSON.parse(t).error.code, -32602)],
];
for (const [title, init, status, check] of rows)
	test(`POST: ${title}`, async () => {
		const { path = '/mcp', method = 'POST', headers = {}, body } = init;
		const response = method === 'POST' ? await post(body, headers, path) : await fetch(url + path, { method, headers });
		const text = await response.text();
		assert.equal(response.status, status, text.slice(0, 500));
		assert.equal(response.headers.get('mcp-session-id'), null);
		check?.(response, text);
	});

test('ids come back byte for byte', async () => {
	for (const id of ['"abc"', '"1"', '0', '-1', '9007199254740991', '"\\u00e9\\"x"']) {
		const text = await (await post(`{"params":{"id":"inner"},"id":${id},"jsonrpc":"2.0","method":"ping"}`)).text();
		assert.equal(text, `{"jsonrpc":"2.0","id":${id},"result":{}}`);
	}
});

test('no OAuth documents, and no HTML in their place', async () => {
	for (const path of ['/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/mcp',
		'/.well-known/oauth-authorization-server', '/.well-known/openid-configuration', '/register']) {
		const r = await fetch(url + path, { redirect: 'manual' });
		assert.equal(r.status, 404, path);
		assert.match(r.headers.get('content-type'), /json/);
		await r.text();
	}
});

test('health, readiness, problem+json elsewhere', async () => {
	assert.deepEqual((await (await fetch(`${url}/healthz`)).json()).ok, true);
	assert.equal((await (await fetch(`${url}/readyz`)).json()).hosts, 1);
	const r = await fetch(`${url}/v1/nothing`);
	assert.equal(r.status, 404);
	assert.equal(r.headers.get('content-type'), 'application/problem+json');
	const p = await r.json();
	assert.equal(p.code, 'not_found');
	assert.equal(p.error, p.detail);
});

test('wrong arguments are results that a model can act on', async () => {
	const client = await connect();
	const bad = [
		['sandbox_start', { services: [{ name: 'a', port: 70000 }] }, /port.*from 1 to 65535/],
		['sandbox_start', { services: [{ name: 'a', port: 1 }, { name: 'a', port: 2 }] }, /"a" again/],
		['sandbox_start', { idleTimeoutMin: 0 }, /from 1 to/], ['sandbox_start', { idleTimeoutMin: -1 }, /from 1 to/],
		['sandbox_start', { idleTimeoutMin: '5' }, /whole number/], ['sandbox_start', { idleTimeoutMin: 1e9 }, /from 1 to/],
		['sandbox_start', { environment: 'windows' }, /There are: .*base/], ['sandbox_start', { secrets: ['X'] }, /no secret "X"/],
		['sandbox_exec', { id: 'bnope', cmd: '' }, /cmd.*empty/], ['sandbox_exec', { id: 'bnope' }, /cmd.*missing/],
		['sandbox_exec', { id: 5, cmd: 'true' }, /id.*string/],
	];
	for (const [tool, args, says] of bad)
		assert.match(await failing(client, tool, args), says);
	assert.deepEqual(JSON.parse(sbx('box list --json')), []);
	await client.close();
});

test('a box of another tenant is a box that does not exist', async () => {
	// Without a machine: the row alone decides. The same with a running box stands in 20-box.
	const client = await connect();
	const texts = [];
	for (const tool of ['sandbox_status', 'sandbox_stop', 'sandbox_exec', 'sandbox_result'])
		texts.push(await failing(client, tool, { id: 'baaaaaaaaaaaaaaaaaaaaaaaaaa', ...(tool === 'sandbox_exec' ? { cmd: 'true' } : {}),
			...(tool === 'sandbox_result' ? { execId: '0'.repeat(32) } : {}) }));
	assert.equal(new Set(texts).size, 1);
	assert.match(texts[0], /^not_found: /);
	await client.close();
});

test('keys: read scope, revocation', async () => {
	const full = newTenant('scopes');
	const read = sbx('key add scopes --scope read --name reader');
	const client = await connect(read);
	assert.match(await failing(client, 'sandbox_stop', { id: 'baaaaaaaaaaaaaaaaaaaaaaaaaa' }), /^forbidden: /);
	await call(client, 'sandbox_environments');
	await client.close();
	sbx(`key revoke ${full.slice(0, 10)}`);
	const r = await post(rpc('ping'), { Authorization: `Bearer ${full}` });
	assert.equal(r.status, 401);
	await r.text();
	assert.ok(mcp);
});
