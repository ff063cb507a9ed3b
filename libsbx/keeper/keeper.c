/*
 * The keeper's start, its threads' loops, and its end.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "db/stmts.h"
#include "keeper/keeper_priv.h"
#include "sbx/clock.h"
#include "sbx/fd.h"
#include "sbx/log.h"

#define BEAT_MAX_S 10
#define WATCH_MS 5000
#define REGISTER_AGAIN_MS 1000
#define STOP_MS 5000
#define RESERVE_MIN_MIB 1024 /* of the host's memory, kept from boxes: this, or an eighth */
#define VM_CALL_THREADS_MORE 4

bool keeper_sleep(struct keeper *k, pthread_cond_t *cond, int ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	if (!atomic_load(&k->stopping))
		pthread_cond_timedwait(cond, &k->lock, &until);
	return !atomic_load(&k->stopping);
}

void keeper_health(struct keeper *k, bool vm, const char *text)
{
	char *dst = vm ? k->health_vm : k->health_state;
	size_t cap = vm ? sizeof(k->health_vm) : sizeof(k->health_state);

	pthread_mutex_lock(&k->lock);
	if (strncmp(dst, text, cap - 1) != 0) {
		snprintf(dst, cap, "%s", text);
		pthread_cond_broadcast(&k->beat);
	}
	pthread_mutex_unlock(&k->lock);
}

int keeper_profile(struct keeper *k, struct sbx_vm_profile *ret, struct sbx_err *err)
{
	struct sbx_vm_profile p;
	int rc = 0;

	/* One thread chooses and writes it down, the rest wait for what it finds. */
	pthread_mutex_lock(&k->profile_lock);
	if (!k->has_profile) {
		rc = sbx_vm_profile_get(k->vm, k->profile_path, k->accel == SBX_ACCEL_KVM, &p, err);
		if (rc == 0) {
			k->profile = p;
			k->has_profile = true;
			sbx_log(SBX_LOG_INFO, "profile", sbx_kv_s("machine", p.machine),
				sbx_kv_s("cpu", k->accel == SBX_ACCEL_KVM ? p.cpu_kvm : p.cpu_tcg));
		}
	}
	if (rc == 0)
		*ret = k->profile;
	pthread_mutex_unlock(&k->profile_lock);
	return rc;
}

/* Start */

static int host_name(struct keeper *k, struct sbx_err *err)
{
	char name[256] = "";

	if (k->conf->host_name[0])
		snprintf(name, sizeof(name), "%s", k->conf->host_name);
	else if (gethostname(name, sizeof(name) - 1) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "The host's name cannot be read");
	if (strlen(name) >= sizeof(k->host))
		return SBX_FAIL(err, SBX_E_INVALID, "The host's name is too long: set SBX_HOST_NAME");
	for (size_t i = 0; i <= strlen(name); i++)
		k->host[i] = (char)tolower((unsigned char)name[i]);
	return 0;
}

static int paths(struct keeper *k, struct sbx_err *err)
{
	const struct {
		char *dst;
		const char *name;
		mode_t mode; /* 0: made by others */
	} rows[] = {
		/* QEMU opens its own files there under its own uid: it may pass, not look. */
		{ k->volume_dir, "volumes", 0711 },
		{ k->log_dir, "serial", 0711 },
		{ k->image_dir, "images", 0 },
		{ k->own_dir, "keeper", 0755 },
		{ k->profile_path, "keeper/vm-profile", 0 },
	};

	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct stat st;

		if (snprintf(rows[i].dst, sizeof(k->volume_dir), "%s/%s", k->conf->state_dir, rows[i].name) >=
			(int)sizeof(k->volume_dir))
			return SBX_FAIL(err, SBX_E_INVALID, "SBX_STATE_DIR is too long");
		if (!rows[i].mode)
			continue;
		if (sbx_fd_mkdirs(rows[i].dst, rows[i].mode, err) < 0)
			return -1;
		if (stat(rows[i].dst, &st) < 0 || (geteuid() != 0 && st.st_uid != geteuid()))
			return SBX_FAIL(
				err, SBX_E_INVALID, "%s must belong to the user that the keeper runs as", rows[i].dst);
	}
	return 0;
}

/* The UUID that marks the domains of this installation: made once. */
static int instance_id(struct keeper *k, struct sbx_err *err)
{
	sbx_auto_buf struct sbx_buf b;
	struct sbx_err e = SBX_ERR_INIT;
	char path[300];

	sbx_buf_init(&b, 4096);
	snprintf(path, sizeof(path), "%s/instance-id", k->own_dir);
	if (sbx_fd_slurp(path, &b, &e) == 0) {
		struct sbx_str text = sbx_str_trim(sbx_buf_str(&b));

		if (text.n != SBX_UUID_SIZE - 1 || !sbx_str_copyz(text, k->instance_id, SBX_UUID_SIZE))
			return SBX_FAIL(err, SBX_E_INVALID, "%s does not hold a UUID", path);
		return 0;
	}
	if (e.code != SBX_E_NOT_FOUND)
		return keeper_pass(err, &e);
	if (sbx_uuid_new(k->instance_id, err) < 0)
		return -1;
	return sbx_fd_replace(path, sbx_str_of(k->instance_id), 0644, true, err);
}

/* Kept open, and with it the lock, for the process's life. */
static int only_one(const struct keeper *k, struct sbx_err *err)
{
	char path[300], pid[24];
	int fd, n;

	snprintf(path, sizeof(path), "%s/lock", k->own_dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot open %s", path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		SBX_FAIL_SYS(err, SBX_E_CONFLICT, "Another keeper runs here: it holds %s", path);
		close(fd);
		return -1;
	}
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || sbx_fd_write_full(fd, pid, (size_t)n) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot write %s", path);
	return 0;
}

static int acceleration(struct keeper *k, struct sbx_err *err)
{
	char reason[SBX_ACCEL_REASON_SIZE], names[1024];
	struct group group, *found = NULL;

	if (sbx_accel_detect(k->conf->accel, &k->accel, reason, err) < 0)
		return -1;
	if (k->accel == SBX_ACCEL_KVM) {
		if (getgrnam_r("kvm", &group, names, sizeof(names), &found) != 0 || !found)
			return SBX_FAIL(err, SBX_E_UNAVAILABLE, "There is no group kvm for QEMU to open /dev/kvm with");
		k->kvm_gid = group.gr_gid;
		sbx_log(SBX_LOG_INFO, "accel", sbx_kv_s("accel", "kvm"), sbx_kv_s("reason", reason));
	} else {
		sbx_log(SBX_LOG_WARN, "accel", sbx_kv_s("accel", "tcg"), sbx_kv_s("reason", reason),
			sbx_kv_s("means", "boxes are emulated: everything in them runs several times slower"));
	}
	return 0;
}

static void on_stopped(void *arg, const char *machine)
{
	struct keeper *k = arg;

	pthread_mutex_lock(&k->lock);
	if (k->stopped_n < KEEPER_STOPPED_MAX)
		snprintf(k->stopped[k->stopped_n++], SBX_UUID_SIZE, "%s", machine);
	else
		k->want_reconcile = true;
	pthread_cond_broadcast(&k->watch);
	pthread_mutex_unlock(&k->lock);
}

static void locks(struct keeper *k)
{
	pthread_condattr_t monotonic;
	pthread_cond_t *conds[] = { &k->work, &k->watch, &k->beat, &k->idle };

	pthread_mutex_init(&k->take_lock, NULL);
	pthread_mutex_init(&k->profile_lock, NULL);
	pthread_mutex_init(&k->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	for (size_t i = 0; i < SBX_ARRAY_LEN(conds); i++)
		pthread_cond_init(conds[i], &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static int prepare(struct keeper *k, const char *conninfo, struct sbx_err *err)
{
	const struct sbx_conf *conf = k->conf;
	struct sbx_vm_conf vm = {
		.uri = conf->libvirt_uri,
		.instance = conf->instance,
		.instance_id = k->instance_id,
		.volume_dir = k->volume_dir,
		.log_dir = k->log_dir,
		.threads = (int)conf->keeper_threads * 2 + VM_CALL_THREADS_MORE,
	};

	locks(k);
	k->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (k->wake_fd < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "No eventfd");
	if (host_name(k, err) < 0 || paths(k, err) < 0 || only_one(k, err) < 0 || instance_id(k, err) < 0 ||
		sbx_uuid_new(k->id, err) < 0 || acceleration(k, err) < 0 ||
		sbx_slot_space_init(&k->space, conf->box_cidr, conf->instance_tag, conf->uid_base, err) < 0)
		return -1;
	k->keys = sbx_keyring_open(conf->master_key_file, err);
	if (!k->keys)
		return -1;
	k->vm = sbx_vm_new(&vm, on_stopped, k, err);
	if (!k->vm)
		return -1;
	k->db = sbx_db_pool_new(conninfo, "sbx-keeper", (int)conf->keeper_threads + 3);
	return k->db ? 0 : SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
}

static int64_t memory_mib(const struct keeper *k)
{
	struct sysinfo info;
	int64_t total, reserve;

	if (k->conf->memory_mib)
		return k->conf->memory_mib;
	if (sysinfo(&info) < 0)
		return 0;
	total = (int64_t)((uint64_t)info.totalram * info.mem_unit / (1024 * 1024));
	reserve = total / 8 > RESERVE_MIN_MIB ? total / 8 : RESERVE_MIN_MIB;
	return total > reserve ? total - reserve : 0;
}

static int register_host(struct keeper *k, struct sbx_err *err)
{
	sbx_auto_res struct sbx_res *r = NULL;

	if (keeper_run(k, &sbx_stmt_keeper_other_range, SBX_PARAMS(sbx_p_z(k->host), sbx_p_z(k->conf->box_cidr)), &r,
		    err) < 0)
		return -1;
	if (sbx_res_i(r, 0, 0) > 0)
		return SBX_FAIL(err, SBX_E_CONFLICT,
			"%lld machines of this host have addresses outside of %s: stop them before SBX_BOX_CIDR changes",
			(long long)sbx_res_i(r, 0, 0), k->conf->box_cidr);
	if (keeper_run(k, &sbx_stmt_keeper_host,
		    SBX_PARAMS(sbx_p_z(k->host), sbx_p_z(sbx_accel_name(k->accel)),
			    sbx_p_i(sysconf(_SC_NPROCESSORS_ONLN)), sbx_p_i(memory_mib(k)), sbx_p_z(k->conf->box_cidr),
			    sbx_p_z(SBX_KEEPER_VERSION), sbx_p_z(k->id)),
		    NULL, err) < 0)
		return -1;
	return keeper_run(k, &sbx_stmt_keeper_adopt, SBX_PARAMS(sbx_p_z(k->host), sbx_p_z(k->id)), NULL, err);
}

static bool signalled(int signal_fd, int wait_ms)
{
	struct pollfd p = { .fd = signal_fd, .events = POLLIN };

	return poll(&p, 1, wait_ms) > 0;
}

/* Waits for a database that is not there yet. 0 registered, 1 told to stop meanwhile, -1 hopeless. */
static int register_patiently(struct keeper *k, int signal_fd, struct sbx_err *err)
{
	bool was_down = false;

	for (;;) {
		struct sbx_err e = SBX_ERR_INIT;

		if (register_host(k, &e) == 0)
			return 0;
		if (e.code == SBX_E_CONFLICT || e.code == SBX_E_INVALID)
			return keeper_pass(err, &e);
		if (!was_down)
			sbx_log_err(SBX_LOG_WARN, "register", &e, SBX_KV_NONE);
		was_down = true;
		if (signalled(signal_fd, REGISTER_AGAIN_MS))
			return 1;
	}
}

/* Threads */

static void wake_main(struct keeper *k)
{
	uint64_t one = 1;

	/* It fails only when the counter is full, and then main is awake anyway. */
	if (write(k->wake_fd, &one, sizeof(one)) < 0)
		return;
}

static void beat(struct keeper *k, bool *was_down)
{
	sbx_auto_res struct sbx_res *r = NULL;
	sbx_auto_buf struct sbx_buf active;
	struct sbx_err err = SBX_ERR_INIT;
	char health[420];
	int rc;

	pthread_mutex_lock(&k->lock);
	snprintf(health, sizeof(health), "%s%s%s", k->health_vm, k->health_vm[0] && k->health_state[0] ? "; " : "",
		k->health_state);
	pthread_mutex_unlock(&k->lock);
	rc = keeper_run(
		k, &sbx_stmt_keeper_beat, SBX_PARAMS(sbx_p_z(k->host), sbx_p_z(k->id), sbx_p_z(health)), &r, &err);
	if (rc == 0 && sbx_res_affected(r) == 0) {
		atomic_store(&k->lost_host, true);
		wake_main(k);
		return;
	}
	sbx_buf_init(&active, 4096);
	keeper_active_text(k, &active);
	if (rc == 0 && active.n > 2)
		rc = keeper_run(k, &sbx_stmt_keeper_renew,
			SBX_PARAMS(sbx_p_z(k->id), sbx_p_i(k->conf->op_lease_s), sbx_p_s(sbx_buf_str(&active))), NULL,
			&err);
	if (rc < 0 && !*was_down)
		sbx_log_err(SBX_LOG_WARN, "beat", &err, SBX_KV_NONE);
	*was_down = rc < 0;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void *beat_thread(void *arg)
{
	struct keeper *k = arg;
	int64_t every_s = least(BEAT_MAX_S, least(k->conf->op_lease_s / 3, k->conf->keeper_seen_s / 4));
	bool was_down = false;

	if (every_s < 1)
		every_s = 1;
	while (!atomic_load(&k->stopping)) {
		beat(k, &was_down);
		pthread_mutex_lock(&k->lock);
		keeper_sleep(k, &k->beat, was_down ? 1000 : (int)every_s * 1000);
		pthread_mutex_unlock(&k->lock);
	}
	return NULL;
}

/* Takes one domain off the list of those that ended. */
static bool next_stopped(struct keeper *k, char machine[SBX_UUID_SIZE])
{
	bool has = false;

	pthread_mutex_lock(&k->lock);
	if (k->stopped_n > 0) {
		memcpy(machine, k->stopped[--k->stopped_n], SBX_UUID_SIZE);
		has = true;
	}
	pthread_mutex_unlock(&k->lock);
	return has;
}

/* Whether libvirt answers; a new connection means that events may have been missed. */
static bool watch_libvirt(struct keeper *k, uint64_t *connections)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_vm_profile profile;
	bool was_well = !k->health_vm[0]; /* written by this thread alone */
	uint64_t now;

	if (sbx_vm_ping(k->vm, &err) < 0 || keeper_profile(k, &profile, &err) < 0) {
		if (was_well)
			sbx_log_err(SBX_LOG_WARN, "libvirt.down", &err, SBX_KV_NONE);
		keeper_health(k, true, err.msg);
		return false;
	}
	keeper_health(k, true, "");
	now = sbx_vm_connections(k->vm);
	if (now == *connections)
		return true;
	*connections = now;
	pthread_mutex_lock(&k->lock);
	k->want_reconcile = true;
	pthread_mutex_unlock(&k->lock);
	keeper_ops_wake(k);
	return true;
}

static void reconcile_if(struct keeper *k, int64_t *due_ms, enum sbx_code *last)
{
	struct sbx_err err = SBX_ERR_INIT;
	int64_t start_ms = sbx_mono_ms();
	bool wanted;

	pthread_mutex_lock(&k->lock);
	wanted = k->want_reconcile || start_ms >= *due_ms;
	k->want_reconcile = false;
	pthread_mutex_unlock(&k->lock);
	if (!wanted)
		return;
	*due_ms = start_ms + k->conf->reconcile_s * 1000;
	if (keeper_reconcile(k, &err) < 0 && err.code != *last)
		sbx_log_err(SBX_LOG_WARN, "reconcile", &err, SBX_KV_NONE);
	*last = err.code;
	sbx_log(SBX_LOG_DEBUG, "reconcile.done", sbx_kv_i("dur_ms", sbx_mono_ms() - start_ms));
}

static void *watch_thread(void *arg)
{
	struct keeper *k = arg;
	enum sbx_code last = SBX_OK;
	uint64_t connections = 0;
	int64_t due_ms = 0, ping_ms = 0;
	bool is_well = false;

	while (!atomic_load(&k->stopping)) {
		char machine[SBX_UUID_SIZE];

		if (!is_well || sbx_mono_ms() >= ping_ms) {
			is_well = watch_libvirt(k, &connections);
			ping_ms = sbx_mono_ms() + WATCH_MS;
		}
		while (is_well && next_stopped(k, machine)) {
			struct sbx_err err = SBX_ERR_INIT;

			/* What cannot be settled now is settled by the next reconcile. */
			if (keeper_check_stopped(k, machine, &err) < 0)
				sbx_log_err(SBX_LOG_WARN, "machine.stopped", &err, sbx_kv_s("machine", machine));
		}
		if (is_well)
			reconcile_if(k, &due_ms, &last);
		pthread_mutex_lock(&k->lock);
		if (k->stopped_n == 0 || !is_well)
			keeper_sleep(k, &k->watch, is_well ? (int)least(WATCH_MS, k->conf->reconcile_s * 1000) : 1000);
		pthread_mutex_unlock(&k->lock);
	}
	return NULL;
}

static int start_threads(struct keeper *k, struct sbx_err *err)
{
	pthread_t t;
	int rc = pthread_create(&t, NULL, watch_thread, k);

	if (rc == 0) {
		pthread_detach(t);
		rc = pthread_create(&t, NULL, beat_thread, k);
	}
	for (int64_t i = 0; rc == 0 && i < k->conf->keeper_threads && i < KEEPER_THREADS_MAX; i++) {
		pthread_detach(t);
		rc = pthread_create(&t, NULL, keeper_op_thread, k);
	}
	if (rc != 0)
		return sbx_err_sys(err, SBX_E_NOMEM, rc, __func__, "Threads cannot be started");
	pthread_detach(t);
	return 0;
}

/* Main loop */

static void on_notify(void *arg, const char *channel, const char *payload)
{
	struct keeper *k = arg;

	(void)channel;
	if (sbx_streq(payload, k->host))
		keeper_ops_wake(k);
}

static void on_connect(void *arg)
{
	keeper_ops_wake(arg);
}

static void serve(struct keeper *k, struct sbx_listener *l, int signal_fd)
{
	for (;;) {
		struct pollfd p[3] = {
			{ .fd = signal_fd, .events = POLLIN },
			{ .fd = k->wake_fd, .events = POLLIN },
			{ .fd = -1 },
		};
		int wait_ms = 1000;

		sbx_listener_turn(l, &p[2].fd, &p[2].events, &wait_ms);
		if (poll(p, SBX_ARRAY_LEN(p), wait_ms) < 0 && errno != EINTR)
			return;
		if (p[0].revents || atomic_load(&k->lost_host))
			return;
	}
}

/* Nothing new is begun, boots are left to the next keeper, and what else runs has a moment to end. */
static void stop(struct keeper *k)
{
	struct sbx_err err = SBX_ERR_INIT;
	int64_t deadline_ms = sbx_mono_ms() + STOP_MS;

	atomic_store(&k->stopping, true);
	pthread_mutex_lock(&k->lock);
	pthread_cond_broadcast(&k->work);
	pthread_cond_broadcast(&k->watch);
	pthread_cond_broadcast(&k->beat);
	while (k->active_n > 0 && sbx_mono_ms() < deadline_ms) {
		struct timespec until;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec++;
		pthread_cond_timedwait(&k->idle, &k->lock, &until);
	}
	pthread_mutex_unlock(&k->lock);
	if (!atomic_load(&k->lost_host) &&
		keeper_run(k, &sbx_stmt_keeper_release, SBX_PARAMS(sbx_p_z(k->id)), NULL, &err) < 0)
		sbx_log_err(SBX_LOG_WARN, "release", &err, SBX_KV_NONE);
}

static int signals(struct sbx_err *err)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0 || signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return SBX_FAIL(err, SBX_E_INTERNAL, "Signals cannot be set up");
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd >= 0 ? fd : SBX_FAIL_SYS(err, SBX_E_INTERNAL, "No signalfd");
}

/*
 * One keeper a process, never freed: threads that wait for libvirt may outlive its end, which is the
 * end of the process.
 */
static struct keeper the_keeper;

int sbx_keeper_run(const struct sbx_conf *conf, struct sbx_err *err)
{
	static const char *const channels[] = { "sbx_ops", NULL };
	struct keeper *k = &the_keeper;
	sbx_auto_buf struct sbx_buf conninfo;
	struct sbx_listener *l;
	int signal_fd = signals(err), rc;

	if (signal_fd < 0)
		return -1;
	umask(022);
	k->conf = conf;
	sbx_buf_init(&conninfo, 4096);
	sbx_buf_addz(&conninfo, conf->db);
	sbx_buf_addz(&conninfo, " user=sbx_keeper");
	if (sbx_buf_ok(&conninfo, err) < 0 || prepare(k, sbx_buf_z(&conninfo), err) < 0)
		return -1;
	rc = register_patiently(k, signal_fd, err);
	if (rc != 0)
		return rc < 0 ? -1 : 0;
	l = sbx_listener_new(sbx_buf_z(&conninfo), "sbx-keeper listen", channels, on_notify, on_connect, k);
	if (!l)
		return SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	if (start_threads(k, err) < 0)
		return -1;
	sbx_log(SBX_LOG_INFO, "keeper.started", sbx_kv_s("host", k->host), sbx_kv_s("keeper", k->id),
		sbx_kv_s("instance", conf->instance), sbx_kv_s("instance_id", k->instance_id));
	serve(k, l, signal_fd);
	stop(k);
	sbx_log(SBX_LOG_INFO, "keeper.stopped", SBX_KV_NONE);
	if (atomic_load(&k->lost_host))
		return SBX_FAIL(err, SBX_E_CONFLICT, "Another keeper has taken over host %s", k->host);
	return 0;
}
