// TAP for TAP::Harness from Node's test runner: one line a test, what failed as comments.
import { inspect } from 'node:util';

export default async function* tap(source) {
	let n = 0;
	for await (const { type, data } of source) {
		if (type === 'test:stderr' || type === 'test:stdout')
			yield data.message.replace(/^/gm, '# ').trimEnd() + '\n';
		if ((type !== 'test:pass' && type !== 'test:fail') || data.nesting > 0 || data.details?.type === 'suite')
			continue;
		const skip = data.skip === undefined ? '' : ` # SKIP ${data.skip === true ? '' : data.skip}`;
		yield `${type === 'test:pass' ? 'ok' : 'not ok'} ${++n} - ${data.name.replace(/[#\n]/g, ' ')}${skip}\n`;
		if (type === 'test:fail') {
			const cause = data.details.error?.cause ?? data.details.error;
			yield inspect(cause, { maxStringLength: 2000 }).replace(/^/gm, '# ') + '\n';
		}
	}
	yield `1..${n}\n`;
}
