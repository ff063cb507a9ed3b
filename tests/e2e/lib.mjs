// What the e2e tests share: SDK clients, raw requests, and small waits. The environment comes from tests/e2e/run.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { execFileSync } from 'node:child_process';
import assert from 'node:assert/strict';

export const url = process.env.SBX_URL;
export const key = process.env.SBX_API_KEY;
export const mcp = `${url}/mcp`;

export function sh(cmd, options = {}) {
	return execFileSync('/bin/bash', ['-c', cmd], { encoding: 'utf8', maxBuffer: 64 << 20, ...options }).trim();
}

/** A client of the TypeScript SDK 1.x, connected; close() it. */
export async function connect(apiKey = key) {
	const client = new Client({ name: 'sbx-tests', version: '1' });
	await client.connect(new StreamableHTTPClientTransport(new URL(mcp), {
		requestInit: { headers: { Authorization: `Bearer ${apiKey}`, 'X-Psbx-Client': 'tests/1' } },
	}));
	await client.listTools(); // from now on the SDK checks structuredContent against the output schemas
	return client;
}

/** Calls a tool; gives its object, or throws with the tool's text. */
export async function call(client, name, args = {}, timeout = 240000) {
	const result = await client.callTool({ name, arguments: args }, undefined, { timeout });
	if (result.isError)
		throw new Error(result.content[0].text);
	assert.equal(result.content.length, 1);
	assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent);
	return result.structuredContent;
}

/** Gives the text of a tool's error. */
export async function failing(client, name, args = {}) {
	const result = await client.callTool({ name, arguments: args });
	assert.equal(result.isError, true, JSON.stringify(result));
	assert.equal(result.structuredContent, undefined);
	return result.content[0].text;
}

/** One raw POST to /mcp. */
export function post(body, headers = {}, path = '/mcp') {
	return fetch(url + path, {
		method: 'POST',
		headers: { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream',
			Authorization: `Bearer ${key}`, ...headers },
		body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
	});
}

export function rpc(method, params, id = 1) {
	return { jsonrpc: '2.0', id, method, ...(params === undefined ? {} : { params }) };
}

/** Looks every 50 ms until fn gives something true; fails after ms. */
export async function until(fn, ms = 30000, what = fn.toString()) {
	for (const end = Date.now() + ms; ;) {
		const v = await fn();
		if (v)
			return v;
		if (Date.now() > end)
			throw new Error(`not within ${ms} ms: ${what}`);
		await new Promise((r) => setTimeout(r, 50));
	}
}

/** SQL as a role of the database. */
export function sql(text, role = 'sbx_admin') {
	return sh(`psql -XqtA -v ON_ERROR_STOP=1 -h "$SBX_RUN/pg" -U ${role} -d sbx`, { input: text });
}

export function sbx(args) {
	return sh(`"$SBX_APP/bin/sbx" ${args} 2>/dev/null`);
}

/** A tenant of its own with a key. */
export function newTenant(name, plan = 'max') {
	sbx(`tenant add ${name} --plan ${plan}`);
	return sbx(`key add ${name}`);
}

/** Nothing of ours is left on the host. */
export function leftovers() {
	return sh(`{ virsh -q list --name; ls "$SBX_STATE/volumes"; ip -o link | grep -o ' s${process.env.SBX_TAG}[cu][0-9]*:' || true;
		ps -eo args= | grep '[q]emu-system' | cut -c1-200 || true; } | sed '/^$/d'`);
}
