-- Who may do what. Run by sbx_owner after every migration: takes all away, then gives what is needed, in
-- one transaction, so nobody ever sees a state between.

do $$
begin
	execute format('revoke all on database %I from public, sbx_worker, sbx_keeper, sbx_admin', current_database());
	execute format('grant connect on database %I to sbx_worker, sbx_keeper, sbx_admin', current_database());
end
$$;
revoke all on schema public from public;

revoke all on schema sbx from public, sbx_worker, sbx_keeper, sbx_admin;
revoke all on all tables in schema sbx from public, sbx_worker, sbx_keeper, sbx_admin;
revoke all on all sequences in schema sbx from public, sbx_worker, sbx_keeper, sbx_admin;
revoke all on all routines in schema sbx from public, sbx_worker, sbx_keeper, sbx_admin;
alter default privileges revoke all on tables from public;
alter default privileges revoke all on sequences from public;
alter default privileges revoke all on routines from public;
alter default privileges revoke all on types from public;

grant usage on schema sbx to sbx_worker, sbx_keeper;
grant select on schema_migrations to sbx_worker, sbx_keeper;

-- Workers.
grant execute on function auth_key(bytea), current_tenant(), stop_box(uuid, text, text, text) to sbx_worker;
grant select on plans, images, hosts, machines, tenants, boxes, box_runs, box_events to sbx_worker;
grant select (id, tenant_id, name, prefix, scope, created_at, expires_at, last_used_at, revoked_at)
	on api_keys to sbx_worker;
grant select on ops to sbx_worker;
grant insert on machines, ops, boxes, box_events to sbx_worker;
grant update (generation, epoch, kid) on machines to sbx_worker;
grant update (machine_id, state, op, environment, services, external_base_url, idle_timeout_min,
	idempotency_key, started_from, note, client, reason_code, reason, ready_at, last_used_at, ended_at)
	on boxes to sbx_worker;

-- Keepers.
grant select on plans, images, hosts, machines, ops, boxes, box_runs, box_events to sbx_keeper;
grant insert, update on hosts, machines, ops, box_runs to sbx_keeper;
grant update (machine_id, state, op, started_from, reason_code, reason, ready_at, last_used_at, ended_at)
	on boxes to sbx_keeper;
grant insert on box_events to sbx_keeper;
