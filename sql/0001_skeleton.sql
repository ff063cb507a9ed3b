-- Tables of the walking system: who uses it, which hosts and machines there are, whose boxes run on them.
-- Machines belong to hosts and have no tenant; boxes belong to tenants and point at a machine.

create table plans (
	name text primary key check (name ~ '^[a-z][a-z0-9_]{0,31}$'),
	max_boxes integer not null check (max_boxes between 0 and 10000),
	created_at timestamptz not null default now()
);
comment on table plans is 'What a tenant may use at once.';
comment on column plans.name is 'Name of the plan, as shown to people.';
comment on column plans.max_boxes is 'How many boxes may run at once (claimed, ready, takeover, and what is on its way there).';
comment on column plans.created_at is 'When the plan was made.';
insert into plans (name, max_boxes) values ('free', 3), ('pro', 5), ('max', 20);

create table tenants (
	id uuid primary key default gen_random_uuid(),
	name text not null unique check (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
	plan text not null default 'free' references plans (name),
	suspended_at timestamptz,
	created_at timestamptz not null default now()
);
comment on table tenants is 'A customer: owns API keys and boxes. Nothing of one tenant is visible to another.';
comment on column tenants.id is 'Identity; leads the key of every table that belongs to tenants.';
comment on column tenants.name is 'Name for operators, unique.';
comment on column tenants.plan is 'Limits that apply.';
comment on column tenants.suspended_at is 'When set, every key of the tenant is refused.';
comment on column tenants.created_at is 'When the tenant was made.';

create table api_keys (
	id uuid primary key default gen_random_uuid(),
	tenant_id uuid not null references tenants (id) on delete cascade,
	name text not null default '' check (length(name) <= 200),
	prefix text not null check (length(prefix) between 4 and 16),
	hash bytea not null unique check (octet_length(hash) = 32),
	scope text not null default 'full' check (scope in ('full', 'agent', 'read')),
	created_at timestamptz not null default now(),
	expires_at timestamptz,
	last_used_at timestamptz,
	revoked_at timestamptz
);
create index api_keys_tenant on api_keys (tenant_id);
comment on table api_keys is 'API keys. Only the SHA-256 of a key is kept: a key is shown once, when it is made.';
comment on column api_keys.id is 'Identity, safe to show.';
comment on column api_keys.tenant_id is 'Whose key it is.';
comment on column api_keys.name is 'What the owner calls it.';
comment on column api_keys.prefix is 'First characters of the key, so that people recognise it.';
comment on column api_keys.hash is 'SHA-256 of the whole key (32 random bytes, so no salt is needed).';
comment on column api_keys.scope is 'full; agent = tools and boxes, no keys; read = nothing that changes.';
comment on column api_keys.created_at is 'When it was made.';
comment on column api_keys.expires_at is 'Refused from then on; null = never.';
comment on column api_keys.last_used_at is 'Last accepted use, to the minute.';
comment on column api_keys.revoked_at is 'Refused since; null = valid.';

create table hosts (
	name text primary key check (name ~ '^[a-z0-9][a-z0-9.-]{0,62}$'),
	state text not null default 'active' check (state in ('active', 'draining')),
	accel text not null default 'tcg' check (accel in ('kvm', 'tcg')),
	cpus integer not null default 1 check (cpus > 0),
	memory_mib integer not null default 0 check (memory_mib >= 0),
	box_cidr cidr not null,
	version text not null default '',
	keeper uuid,
	last_seen_at timestamptz,
	health text not null default '',
	created_at timestamptz not null default now()
);
comment on table hosts is 'Machines that run boxes. Each has one keeper, which writes its row.';
comment on column hosts.name is 'Host name, as configured.';
comment on column hosts.state is 'active = takes new boxes; draining = keeps what runs, takes nothing new.';
comment on column hosts.accel is 'How boxes run: kvm, or tcg (emulation) where the CPU has no virtualisation.';
comment on column hosts.cpus is 'Processors of the host.';
comment on column hosts.memory_mib is 'Memory that boxes may take in all, MiB.';
comment on column hosts.box_cidr is 'Range the addresses of boxes are taken from; each machine slot has four.';
comment on column hosts.version is 'Version of the keeper.';
comment on column hosts.keeper is 'Identity of the keeper process that runs now; changes at each start.';
comment on column hosts.last_seen_at is 'Last sign of life of the keeper.';
comment on column hosts.health is 'Empty when all is well, else what is wrong, for people.';
comment on column hosts.created_at is 'When the host first appeared.';

create table images (
	unit text primary key check (unit ~ '^[a-z0-9][a-z0-9._-]{0,127}$'),
	name text not null check (name ~ '^[a-z][a-z0-9-]{0,31}$'),
	vcpu integer not null check (vcpu between 1 and 64),
	memory_mib integer not null check (memory_mib between 64 and 1048576),
	disk_gib integer not null check (disk_gib between 1 and 65536),
	bytes bigint not null check (bytes >= 0),
	protocol integer not null check (protocol > 0),
	description text not null default '',
	is_current boolean not null default true,
	created_at timestamptz not null default now()
);
create unique index images_current on images (name) where is_current;
comment on table images is 'Image units: kernel, initramfs, root filesystem and guest programs, immutable and named by content.';
comment on column images.unit is 'Name of the unit, derived from its content; also its directory.';
comment on column images.name is 'What sandbox_start calls it: `environment`.';
comment on column images.vcpu is 'Virtual CPUs of a box made from it.';
comment on column images.memory_mib is 'Memory of a box made from it, MiB.';
comment on column images.disk_gib is 'Size of the root disk of a box made from it, GiB.';
comment on column images.bytes is 'Space that the unit takes on a host.';
comment on column images.protocol is 'Version of the protocol that its boxd speaks.';
comment on column images.description is 'One line for people and agents.';
comment on column images.is_current is 'New boxes of this name start from this unit.';
comment on column images.created_at is 'When it was registered.';

create table machines (
	id uuid primary key default gen_random_uuid(),
	host text not null references hosts (name),
	slot integer not null check (slot >= 0),
	unit text not null references images (unit),
	vcpu integer not null,
	memory_mib integer not null,
	disk_gib integer not null,
	state text not null default 'new' check (state in ('new', 'running', 'gone')),
	generation integer not null default 1,
	epoch integer not null default 0,
	kid integer not null default 1,
	user_network boolean not null default true,
	control_address inet not null,
	user_address inet not null,
	created_at timestamptz not null default now(),
	running_at timestamptz,
	gone_at timestamptz
);
create unique index machines_slot on machines (host, slot) where state <> 'gone';
comment on table machines is 'Virtual machines of hosts. No tenant: a box points at its machine.';
comment on column machines.id is 'Identity; also the UUID of the libvirt domain.';
comment on column machines.host is 'Where it lives.';
comment on column machines.slot is 'Number on its host: addresses, tap names, MAC addresses and the uid of its QEMU follow from it.';
comment on column machines.unit is 'Image unit its disk is laid over.';
comment on column machines.vcpu is 'Virtual CPUs.';
comment on column machines.memory_mib is 'Memory, MiB.';
comment on column machines.disk_gib is 'Size of its root disk, GiB.';
comment on column machines.state is 'new = to be made; running = boxd has answered; gone = nothing of it is left on the host.';
comment on column machines.generation is 'Raised by each new op: an op of an older generation does nothing.';
comment on column machines.epoch is 'Key epoch of its boxd: raised when the machine is handed to somebody.';
comment on column machines.kid is 'Which master key its boxd key is derived from.';
comment on column machines.user_network is 'Whether the box has a network besides the control link.';
comment on column machines.control_address is 'Address of boxd, reachable from the host alone.';
comment on column machines.user_address is 'Address of the box for the network that its commands use.';
comment on column machines.created_at is 'When it was asked for.';
comment on column machines.running_at is 'When boxd first answered.';
comment on column machines.gone_at is 'When it was found or made gone.';

create table boxes (
	tenant_id uuid not null references tenants (id),
	id text not null unique check (id ~ '^[a-z][a-z2-7]{26}$'),
	machine_id uuid references machines (id),
	state text not null default 'claimed'
		check (state in ('claimed', 'ready', 'takeover', 'frozen', 'stopping', 'terminated', 'interrupted')),
	op text check (op in ('starting', 'stopping', 'freezing', 'thawing')),
	environment text not null,
	services jsonb not null default '[]' check (jsonb_typeof(services) = 'array'),
	external_base_url text,
	idle_timeout_min integer check (idle_timeout_min > 0),
	idempotency_key text check (length(idempotency_key) between 1 and 200),
	started_from text not null default 'cold' check (started_from in ('spare', 'cold')),
	note text not null default '',
	key_id uuid references api_keys (id) on delete set null,
	client text not null default '',
	reason_code text,
	reason text,
	created_at timestamptz not null default now(),
	ready_at timestamptz,
	last_used_at timestamptz not null default now(),
	ended_at timestamptz,
	primary key (tenant_id, id)
);
create index boxes_live on boxes (tenant_id) where state in ('claimed', 'ready', 'takeover');
create index boxes_machine on boxes (machine_id);
create unique index boxes_idempotency on boxes (tenant_id, idempotency_key) where idempotency_key is not null;
comment on table boxes is 'Boxes of tenants, those that ended too.';
comment on column boxes.tenant_id is 'Whose box it is.';
comment on column boxes.id is 'Unguessable id (128 bits), also its name in scene URLs.';
comment on column boxes.machine_id is 'The machine under it.';
comment on column boxes.state is 'Public state, as the contract names it.';
comment on column boxes.op is 'What is under way, or null.';
comment on column boxes.environment is 'Image name it was started from.';
comment on column boxes.services is 'Declared services: [{"name","port"}].';
comment on column boxes.external_base_url is 'Where services live that the box does not run itself.';
comment on column boxes.idle_timeout_min is 'Stop after so many minutes without use; null = never.';
comment on column boxes.idempotency_key is 'Key of the caller under which a second start gives this box.';
comment on column boxes.started_from is 'spare = a waiting machine was assigned; cold = one was booted for it.';
comment on column boxes.note is 'What is being done now, in the caller''s words.';
comment on column boxes.key_id is 'API key that started it.';
comment on column boxes.client is 'Program that started it, in its own words: shown, never trusted.';
comment on column boxes.reason_code is 'Why it ended or was interrupted: a code.';
comment on column boxes.reason is 'The same as a sentence for people.';
comment on column boxes.created_at is 'When it was asked for.';
comment on column boxes.ready_at is 'When it became usable.';
comment on column boxes.last_used_at is 'Last tool call on it.';
comment on column boxes.ended_at is 'When it became terminated or interrupted.';

create table ops (
	id bigint generated always as identity primary key,
	host text not null references hosts (name),
	machine_id uuid not null references machines (id),
	verb text not null check (verb in ('start', 'stop')),
	generation integer not null,
	state text not null default 'queued' check (state in ('queued', 'running', 'done', 'failed', 'stale')),
	keeper uuid,
	lease_until timestamptz,
	attempts integer not null default 0,
	caused_by text not null default '',
	error_code text,
	error text,
	created_at timestamptz not null default now(),
	started_at timestamptz,
	finished_at timestamptz
);
create index ops_open on ops (host, id) where state in ('queued', 'running');
create index ops_machine on ops (machine_id);
comment on table ops is 'Work for keepers: a queue of what is to be done to machines.';
comment on column ops.id is 'Order of arrival.';
comment on column ops.host is 'Whose keeper is to do it.';
comment on column ops.machine_id is 'The machine it is about.';
comment on column ops.verb is 'start = make the machine run; stop = leave nothing of it.';
comment on column ops.generation is 'Generation of the machine it was made for; another one means the op is stale.';
comment on column ops.state is 'queued, running (leased), done, failed (see error), stale (overtaken by a newer op).';
comment on column ops.keeper is 'Keeper process that holds the lease.';
comment on column ops.lease_until is 'Until then nobody else takes it.';
comment on column ops.attempts is 'How often it was taken.';
comment on column ops.caused_by is 'Who asked: key:<id>, operator:<role>, keeper.';
comment on column ops.error_code is 'Code of the failure.';
comment on column ops.error is 'What failed, for people.';
comment on column ops.created_at is 'When it was asked for.';
comment on column ops.started_at is 'When it was first taken.';
comment on column ops.finished_at is 'When it ended.';

create table box_runs (
	tenant_id uuid not null,
	box_id text not null,
	started_at timestamptz not null,
	last_seen_at timestamptz not null,
	ended_at timestamptz,
	check (last_seen_at >= started_at),
	check (ended_at is null or ended_at >= started_at),
	primary key (tenant_id, box_id, started_at),
	foreign key (tenant_id, box_id) references boxes (tenant_id, id)
);
create unique index box_runs_open on box_runs (tenant_id, box_id) where ended_at is null;
comment on table box_runs is 'Intervals in which a box ran: at most one open a box.';
comment on column box_runs.tenant_id is 'Whose box.';
comment on column box_runs.box_id is 'Which box.';
comment on column box_runs.started_at is 'When it began to run.';
comment on column box_runs.last_seen_at is 'Last moment at which the machine was seen alive.';
comment on column box_runs.ended_at is 'When it stopped running; null = runs.';

create table box_events (
	id bigint generated always as identity,
	tenant_id uuid not null,
	box_id text not null,
	at timestamptz not null default now(),
	kind text not null,
	from_state text,
	to_state text,
	caused_by text not null default '',
	detail text not null default '',
	primary key (tenant_id, box_id, id),
	foreign key (tenant_id, box_id) references boxes (tenant_id, id)
);
comment on table box_events is 'What happened to boxes: a row for every state change.';
comment on column box_events.id is 'Order.';
comment on column box_events.tenant_id is 'Whose box.';
comment on column box_events.box_id is 'Which box.';
comment on column box_events.at is 'When.';
comment on column box_events.kind is 'What: started, ready, stop_asked, terminated, interrupted, and the like.';
comment on column box_events.from_state is 'State before.';
comment on column box_events.to_state is 'State after.';
comment on column box_events.caused_by is 'Who: key:<id>, operator:<role>, keeper.';
comment on column box_events.detail is 'More, for people.';

-- Row-level security. Workers see the rows of the tenant that the transaction has set, and none when it
-- set none; keepers and the owner (whose rights views and functions borrow) see all.

create function current_tenant() returns uuid
	language sql stable parallel safe
	return nullif(current_setting('sbx.tenant', true), '')::uuid;
comment on function current_tenant() is
	'Tenant of the transaction: set_config(''sbx.tenant'', …, true). Null when unset, so no row matches.';

alter table tenants enable row level security, force row level security;
create policy tenants_owner on tenants to sbx_owner using (true) with check (true);
create policy tenants_worker on tenants for select to sbx_worker using (id = current_tenant());

alter table api_keys enable row level security, force row level security;
create policy api_keys_owner on api_keys to sbx_owner using (true) with check (true);
create policy api_keys_worker on api_keys for select to sbx_worker using (tenant_id = current_tenant());

alter table boxes enable row level security, force row level security;
create policy boxes_owner on boxes to sbx_owner using (true) with check (true);
create policy boxes_keeper on boxes to sbx_keeper using (true) with check (true);
create policy boxes_worker on boxes to sbx_worker
	using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());

alter table box_runs enable row level security, force row level security;
create policy box_runs_owner on box_runs to sbx_owner using (true) with check (true);
create policy box_runs_keeper on box_runs to sbx_keeper using (true) with check (true);
create policy box_runs_worker on box_runs for select to sbx_worker using (tenant_id = current_tenant());

alter table box_events enable row level security, force row level security;
create policy box_events_owner on box_events to sbx_owner using (true) with check (true);
create policy box_events_keeper on box_events to sbx_keeper using (true) with check (true);
create policy box_events_worker on box_events to sbx_worker
	using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());

-- The one look-up without a tenant: from the hash of a key to who holds it.

create function auth_key(key_hash bytea)
	returns table (key_id uuid, tenant_id uuid, tenant text, scope text, plan text, max_boxes integer)
	language plpgsql volatile security definer set search_path = sbx, pg_temp rows 1
as $$
declare
	is_marked boolean;
begin
	select k.id, t.id, t.name, k.scope, p.name, p.max_boxes,
			coalesce(k.last_used_at > now() - interval '1 minute', false)
		into key_id, tenant_id, tenant, scope, plan, max_boxes, is_marked
		from api_keys k join tenants t on t.id = k.tenant_id join plans p on p.name = t.plan
		where k.hash = key_hash and k.revoked_at is null and t.suspended_at is null
			and (k.expires_at is null or k.expires_at > now());
	if not found then
		return;
	end if;
	-- Written at most once a minute, and never waited for: the call matters more than the mark.
	if not is_marked then
		update api_keys k set last_used_at = now() where k.id in (
			select u.id from api_keys u where u.id = key_id for no key update skip locked);
	end if;
	return next;
end
$$;
comment on function auth_key(bytea) is
	'Who holds the API key with this SHA-256: one row when the key is valid, none otherwise. Marks its use.';

-- Stopping a box, in one transaction: its state and op, a new generation of its machine, the op for the
-- keeper, an event. Runs with the rights of the caller; the order of locks is box, then machine.

create function stop_box(box_tenant uuid, box text, by text, why text) returns text
	language plpgsql volatile set search_path = sbx, pg_temp
as $$
declare
	b boxes;
	m machines;
begin
	select * into b from boxes x where x.tenant_id = box_tenant and x.id = box for update;
	if not found then
		return null;
	end if;
	if b.state in ('stopping', 'terminated', 'interrupted') then
		return b.state;
	end if;
	update machines x set generation = x.generation + 1
		where x.id = b.machine_id and x.state <> 'gone' returning * into m;
	if m.id is null then
		update boxes x set state = 'terminated', op = null, reason_code = 'stopped', reason = why, ended_at = now()
			where x.tenant_id = b.tenant_id and x.id = b.id;
		insert into box_events (tenant_id, box_id, kind, from_state, to_state, caused_by, detail)
			values (b.tenant_id, b.id, 'terminated', b.state, 'terminated', by, why);
		return 'terminated';
	end if;
	update boxes x set state = 'stopping', op = 'stopping', reason_code = 'stopped', reason = why
		where x.tenant_id = b.tenant_id and x.id = b.id;
	insert into ops (host, machine_id, verb, generation, caused_by)
		values (m.host, m.id, 'stop', m.generation, by);
	insert into box_events (tenant_id, box_id, kind, from_state, to_state, caused_by, detail)
		values (b.tenant_id, b.id, 'stop_asked', b.state, 'stopping', by, why);
	return 'stopping';
end
$$;
comment on function stop_box(uuid, text, text, text) is
	'Asks for the end of a box and gives its state now; null: there is none. Stopping again changes nothing.';

-- Notifications, of rare things only. A listener treats each as a hint to look, never as the news itself.

create function notify_op() returns trigger language plpgsql set search_path = sbx, pg_temp as $$
begin
	if tg_op = 'INSERT' then
		perform pg_notify('sbx_ops', new.host);
	elsif new.state in ('done', 'failed', 'stale') then
		perform pg_notify('sbx_op_done', new.machine_id::text);
	end if;
	return null;
end
$$;
comment on function notify_op() is 'Channel sbx_ops (host) for new work, sbx_op_done (machine id) for its end.';
create trigger ops_new after insert on ops for each row execute function notify_op();
create trigger ops_done after update of state on ops for each row
	when (old.state is distinct from new.state) execute function notify_op();

create function notify_box() returns trigger language plpgsql set search_path = sbx, pg_temp as $$
begin
	perform pg_notify('sbx_box', new.id);
	return null;
end
$$;
comment on function notify_box() is 'Channel sbx_box (box id) when the state of a box changes.';
create trigger boxes_state after update of state on boxes for each row
	when (old.state is distinct from new.state) execute function notify_box();

create function notify_key() returns trigger language plpgsql set search_path = sbx, pg_temp as $$
begin
	perform pg_notify('sbx_key', old.id::text);
	return null;
end
$$;
comment on function notify_key() is 'Channel sbx_key (key id) when what a key allows may have changed.';
create trigger api_keys_changed after update of revoked_at, expires_at, scope on api_keys for each row
	when (old.revoked_at is distinct from new.revoked_at or old.expires_at is distinct from new.expires_at
		or old.scope is distinct from new.scope)
	execute function notify_key();
create trigger api_keys_gone after delete on api_keys for each row execute function notify_key();

create function notify_tenant_keys() returns trigger language plpgsql set search_path = sbx, pg_temp as $$
begin
	perform pg_notify('sbx_key', k.id::text) from api_keys k where k.tenant_id = new.id;
	return null;
end
$$;
comment on function notify_tenant_keys() is 'Channel sbx_key for every key of a tenant whose rights changed.';
create trigger tenants_changed after update of suspended_at, plan, name on tenants for each row
	when (old.suspended_at is distinct from new.suspended_at or old.plan is distinct from new.plan
		or old.name is distinct from new.name)
	execute function notify_tenant_keys();
