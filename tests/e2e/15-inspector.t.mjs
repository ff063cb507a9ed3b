// The MCP Inspector's command line, a client of its own.
import test from 'node:test';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { key, mcp } from './lib.mjs';

const inspector = new URL('./node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js', import.meta.url).pathname;
async function inspect(...args) {
	const { stdout, stderr } = await promisify(execFile)(process.execPath, [inspector, '--cli', '--server-url', mcp, '--transport', 'http',
		'--header', `Authorization: Bearer ${key}`, ...args], { env: { ...process.env, HOME: process.env.TMPDIR ?? '/tmp' } });
	return { out: JSON.parse(stdout), stderr };
}

test('lists the tools, strictly', async () => {
	const { out, stderr } = await inspect('--method', 'tools/list', '--strict');
	assert.equal(out.tools.length, 6);
	assert.doesNotMatch(stderr, /\berror\b.*tool|tool.*\berror\b/i, stderr);
});

test('calls a tool', async () => {
	const { out } = await inspect('--method', 'tools/call', '--tool-name', 'sandbox_environments');
	assert.ok(out.structuredContent.environments.length >= 1);
});
