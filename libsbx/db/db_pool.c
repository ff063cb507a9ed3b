#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "db/db_conn.h"
#include "sbx/clock.h"

/* After a failed attempt nobody tries again for a moment, so that a pool of callers fails at once
 * instead of each waiting for its own time-out. */
#define RETRY_FIRST_MS 50
#define RETRY_MAX_MS 1000

struct sbx_db_pool {
	char *conninfo, *application;
	int max;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t given; /* a connection was given back */
	int in_use, idle_n;
	struct sbx_db *idle; /* last used first */
	int64_t retry_at_ms;
	int retry_ms;
	struct sbx_err why; /* of the last failed attempt */
};

struct sbx_db_pool *sbx_db_pool_new(const char *conninfo, const char *application, int max_connections)
{
	struct sbx_db_pool *pool = calloc(1, sizeof(*pool));
	if (pool == NULL)
		return NULL;
	pool->conninfo = strdup(conninfo);
	pool->application = strdup(application);
	pool->max = max_connections;
	pool->retry_ms = RETRY_FIRST_MS;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->given, &attr);
	pthread_condattr_destroy(&attr);
	if (pool->conninfo == NULL || pool->application == NULL) {
		sbx_db_pool_free(pool);
		return NULL;
	}
	return pool;
}

void sbx_db_pool_free(struct sbx_db_pool *pool)
{
	if (pool == NULL)
		return;
	SBX_ASSERT(pool->in_use == 0);
	while (pool->idle != NULL) {
		struct sbx_db *db = pool->idle;
		pool->idle = db->next;
		db_close(db);
		free(db);
	}
	pthread_cond_destroy(&pool->given);
	pthread_mutex_destroy(&pool->lock);
	free(pool->conninfo);
	free(pool->application);
	free(pool);
}

PGconn *db_pool_connect(struct sbx_db_pool *pool, struct sbx_err *err)
{
	struct sbx_err why = SBX_ERR_INIT;
	pthread_mutex_lock(&pool->lock);
	bool is_too_soon = sbx_mono_ms() < pool->retry_at_ms;
	if (is_too_soon)
		why = pool->why;
	pthread_mutex_unlock(&pool->lock);
	PGconn *pg = is_too_soon ? NULL : db_connect(pool->conninfo, pool->application, &why);
	if (!is_too_soon) {
		pthread_mutex_lock(&pool->lock);
		if (pg != NULL) {
			pool->retry_ms = RETRY_FIRST_MS;
			pool->retry_at_ms = 0;
		} else {
			pool->why = why;
			pool->retry_at_ms = sbx_mono_ms() + pool->retry_ms;
			pool->retry_ms = pool->retry_ms * 2 < RETRY_MAX_MS ? pool->retry_ms * 2 : RETRY_MAX_MS;
		}
		pthread_mutex_unlock(&pool->lock);
	}
	if (pg == NULL && err != NULL && err->code == SBX_OK)
		*err = why;
	return pg;
}

/* Counts the caller in when fewer than max are out; false when that did not happen in time. */
static bool wait_turn(struct sbx_db_pool *pool, int timeout_ms)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	int64_t ns = until.tv_nsec + (int64_t)(timeout_ms % 1000) * 1000000;
	until.tv_sec += timeout_ms / 1000 + ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	while (pool->in_use >= pool->max)
		if (timeout_ms <= 0 || pthread_cond_timedwait(&pool->given, &pool->lock, &until) != 0)
			break;
	if (pool->in_use >= pool->max)
		return false;
	pool->in_use++;
	return true;
}

struct sbx_db *sbx_db_take(struct sbx_db_pool *pool, int timeout_ms, struct sbx_err *err)
{
	pthread_mutex_lock(&pool->lock);
	bool is_mine = wait_turn(pool, timeout_ms);
	struct sbx_db *db = is_mine ? pool->idle : NULL;
	if (db != NULL) {
		pool->idle = db->next;
		pool->idle_n--;
	}
	pthread_mutex_unlock(&pool->lock);
	if (!is_mine) {
		SBX_FAIL(err, SBX_E_UNAVAILABLE, "All connections to the database are in use. Try again.");
		return NULL;
	}
	if (db == NULL) {
		db = calloc(1, sizeof(*db));
		if (db != NULL)
			db->pool = pool;
		else
			SBX_FAIL(err, SBX_E_NOMEM, "Out of memory");
	}
	if (db != NULL && db_ensure_open(db, err) == 0)
		return db;
	free(db);
	pthread_mutex_lock(&pool->lock);
	pool->in_use--;
	pthread_cond_signal(&pool->given);
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

void sbx_db_give(struct sbx_db *db)
{
	if (db == NULL)
		return;
	struct sbx_db_pool *pool = db->pool;
	if (db->in_tx)
		sbx_db_rollback(db);
	if (db->pg != NULL && (db->is_used_up || PQtransactionStatus(db->pg) != PQTRANS_IDLE))
		db_close(db);
	pthread_mutex_lock(&pool->lock);
	pool->in_use--;
	if (db->pg != NULL) {
		db->next = pool->idle;
		pool->idle = db;
		pool->idle_n++;
		db = NULL;
	}
	pthread_cond_signal(&pool->given);
	pthread_mutex_unlock(&pool->lock);
	free(db);
}

void sbx_db_auto(struct sbx_db **db)
{
	sbx_db_give(*db);
}

void sbx_db_pool_counts(struct sbx_db_pool *pool, int *ret_in_use, int *ret_open)
{
	pthread_mutex_lock(&pool->lock);
	*ret_in_use = pool->in_use;
	*ret_open = pool->in_use + pool->idle_n;
	pthread_mutex_unlock(&pool->lock);
}
