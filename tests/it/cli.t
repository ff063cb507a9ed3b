#!/bin/bash
# The command line, run as an operator runs it. Speaks TAP; needs what tests/it/run sets.
set -uo pipefail

: "${SBX_TEST_BUILD:?run tests/it/run}" "${SBX_TEST_DB:?run tests/it/run}"
export SBX_CONFIG=/dev/null SBX_DB=$SBX_TEST_DB
sbx=$SBX_TEST_BUILD/sbx
tmp=$(mktemp -d)
trap 'rm -rf --one-file-system "$tmp"' EXIT
n=0

ok() { # NAME COMMAND…
	local name=$1
	shift
	n=$((n + 1))
	if "$@"; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		sed 's/^/# /' "$tmp/out" "$tmp/err" 2>/dev/null
	fi
}
run() { # STATUS ARGUMENT…: runs sbx; output in $tmp/out and $tmp/err
	local want=$1 got=0
	shift
	"$sbx" "$@" >"$tmp/out" 2>"$tmp/err" || got=$?
	((got == want)) || { echo "# status $got, not $want"; return 1; }
}
out() { grep -qE -- "$1" "$tmp/out"; }
err() { grep -qE -- "$1" "$tmp/err"; }
json() { python3 -c 'import json, sys; v = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$tmp/out" "$1"; }
sql() { psql -qXAt -h "$SBX_TEST_DIR" -U postgres -d sbx -v ON_ERROR_STOP=1 -c "$1"; }

ok 'help lists the commands' run 0 --help
ok 'help names options' out 'sbx key add TENANT .--name N.'
ok 'no command is wrong usage' run 2
ok 'unknown command is wrong usage' run 2 frobnicate
ok 'unknown verb is wrong usage' run 2 key frobnicate
ok 'missing argument is wrong usage' run 2 key add
ok 'its usage is shown' err 'sbx key add TENANT'
ok 'too many arguments' run 2 tenant add a b
ok 'an option of another command' run 2 tenant list --plan pro
ok 'an option without its value' run 2 tenant add a --plan

ok 'tenant add' run 0 tenant add cli --plan pro
ok 'prints the id alone' out '^[0-9a-f-]{36}$'
ok 'a second of the name is refused' run 1 tenant add cli
ok 'and says so' err 'There is a tenant cli already'
ok 'a bad name is refused' run 1 tenant add 'Big Name'
ok 'an unknown plan is refused' run 1 tenant add cli2 --plan none
ok 'tenant list' run 0 tenant list
ok 'shows it' out '^cli +pro +5'
ok 'tenant list --json' run 0 tenant list --json
ok 'is JSON with numbers and nulls' json '[t for t in v if t["name"] == "cli"][0]["maxBoxes"] == 5 and v[0]["suspendedAt"] is None'

ok 'key add' run 0 key add cli --name "ci's key" --expires=30
ok 'prints the key alone' out '^sbx_[A-Za-z0-9_-]{43}$'
ok 'on one line' test "$(wc -l <"$tmp/out")" = 1
key=$(cat "$tmp/out")
ok 'the hash alone is kept' test "$(sql "select count(*) from sbx.api_keys where hash = sha256('$key')")" = 1
ok 'key add for nobody' run 1 key add nobody
ok 'says so' err 'There is no tenant nobody'
ok 'bad scope' run 1 key add cli --scope root
ok 'bad days' run 1 key add cli --expires 0
ok 'key list' run 0 key list cli
ok 'shows name, prefix and state' out "ci's key +${key:0:10} +full +valid"
ok 'never the key' bash -c "! grep -q '${key:11}' '$tmp/out'"
ok 'key revoke by prefix' run 0 key revoke "${key:0:10}"
ok 'again is fine' run 0 key revoke "${key:0:10}"
ok 'key list --json' run 0 key list --json
ok 'it is revoked' json '[k for k in v if k["prefix"] == "'"${key:0:10}"'"][0]["state"] == "revoked"'
ok 'unknown key' run 1 key revoke sbx_none
sql "insert into sbx.api_keys (tenant_id, prefix, hash) select id, 'sbx_twice1', sha256(name::bytea || x::bytea)
	from sbx.tenants, unnest(array['a', 'b']) x where name = 'cli'"
ok 'a prefix of two keys is refused' run 1 key revoke sbx_twice1
ok 'and asks for the id' err '2 keys begin with sbx_twice1'

unit=demo-0123456789abcdef
mkdir "$tmp/$unit"
touch "$tmp/$unit"/{kernel,initrd,root.img}
unit_json() { printf '{"name":"demo","unit":"%s","vcpu":1,"memoryMib":512,"diskGib":10,"bytes":5000000000,"protocol":1,"description":"A \\"demo\\""%s}\n' "$1" "${2-}"; }
unit_json $unit >"$tmp/$unit/unit.json"
ok 'image add' run 0 image add "$tmp/$unit"
ok 'again is fine' run 0 image add "$tmp/$unit/"
mv "$tmp/$unit" "$tmp/${unit}2"
unit_json ${unit}2 >"$tmp/${unit}2/unit.json"
ln -s "${unit}2" "$tmp/current"
ok 'a newer unit, through a link' run 0 image add "$tmp/current"
ok 'image list --json' run 0 image list --json
ok 'the newer one is current, alone' json '[i["unit"] for i in v if i["name"] == "demo" and i["isCurrent"]] == ["'${unit}2'"]'
unit_json ${unit}3 >"$tmp/${unit}2/unit.json"
ok 'folder and unit must agree' run 1 image add "$tmp/${unit}2"
unit_json ${unit}2 ',"vcpu":"x"' | sed 's/"vcpu":1,//' >"$tmp/${unit}2/unit.json"
ok 'a wrong type is refused' run 1 image add "$tmp/${unit}2"
ok 'and named' err 'vcpu'
ok 'no such folder' run 1 image add "$tmp/none"

sql "insert into sbx.hosts (name, box_cidr, memory_mib, last_seen_at, health)
	values ('cli-host', '100.64.0.0/16', 4096, now(), 'dnsmasq is down')"
sql "insert into sbx.machines (host, slot, unit, vcpu, memory_mib, disk_gib, state, control_address, user_address)
	values ('cli-host', 7, '${unit}2', 1, 512, 10, 'running', '100.64.0.29', '100.64.0.31')"
box=bclicliclicliclicliclicliabc
box=${box:0:27}
sql "insert into sbx.boxes (tenant_id, id, machine_id, state, environment, note)
	select t.id, '$box', m.id, 'ready', 'demo', e'\\033[31mred' from sbx.tenants t, sbx.machines m
	where t.name = 'cli' and m.host = 'cli-host'"
ok 'host list' run 0 host list
ok 'shows memory, machines and health' out '^cli-host +active +yes +tcg +1 +4096 +512 +1 .*dnsmasq is down$'
ok 'box list' run 0 box list
ok 'shows the box' out "^$box +cli +ready +- +demo +cli-host"
ok 'box stop' run 0 box stop $box
ok 'gives the state' out '^stopping$'
ok 'again is fine' run 0 box stop $box
ok 'one op' test "$(sql "select count(*) from sbx.ops o join sbx.machines m on m.id = o.machine_id where m.host = 'cli-host'")" = 1
ok 'an event that names the operator' test "$(sql "select caused_by from admin.events where box_id = '$box'")" = operator:sbx_admin
ok 'unknown box' run 1 box stop bnone
ok 'says so' err 'There is no box bnone'
sql "update sbx.boxes set state = 'terminated', op = null, ended_at = now() where id = '$box'"
ok 'box list leaves out what ended' run 0 box list
ok '(it is not there)' bash -c "! grep -q $box '$tmp/out'"
ok 'box list --all --json' run 0 box list --all --json
ok 'has it, with its note' json '[b for b in v if b["id"] == "'$box'"][0]["note"] == "\x1b[31mred"'

ok 'config' run 0 config
ok 'prints settings' out '^SBX_DB='
SBX_DB='host=/nonexistent dbname=sbx' ok 'no database' run 1 tenant list
ok 'is said' err 'cannot be reached'
SBX_NONSENSE=1 SBX_CONFIG=$tmp/none ok 'a configuration file that is missing' run 1 tenant list
ok 'migrate without migrations' run 1 migrate --dir "$tmp"
ok 'migrate again' run 0 migrate --dir sql
ok 'changes nothing' out '^0 migrations applied'
ok 'output that cannot be written is a failure' bash -c "'$sbx' tenant list >/dev/full 2>/dev/null; test \$? = 1"

echo "1..$n"
