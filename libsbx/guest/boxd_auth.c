/*
 * Tokens: MAC, machine, epoch, purpose, then the gate. What the gate has let pass is written to a ring
 * on tmpfs first, and a new boxd's gate is filled from it: killing boxd opens no replay.
 */
#include "guest/boxd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <nettle/hmac.h>

#include "sbx/clock.h"
#include "sbx/enc.h"

#define NONCES 4096u
#define RING SBX_RUN_DIR "/nonces"
#define SCHEME "Sbx "

struct pass {
	int64_t boot_ms, issued_at_us; /* issued_at_us 0: empty */
	uint32_t ttl_ms, spare;
	uint8_t nonce[16];
};

struct ring {
	uint64_t at;
	struct pass pass[NONCES];
};

static const struct boxd_conf *conf;
static struct sbx_boxtoken_gate *gate;
static struct ring *ring;

static void replay(void)
{
	for (uint32_t i = 0; i < NONCES; i++) {
		const struct pass *p = &ring->pass[(ring->at + i) % NONCES];
		struct sbx_boxtoken t = { .issued_at_us = p->issued_at_us, .ttl_ms = p->ttl_ms };

		memcpy(t.nonce, p->nonce, sizeof(t.nonce));
		if (p->issued_at_us)
			sbx_boxtoken_gate_pass(gate, &t, p->boot_ms);
	}
}

int boxd_auth_open(const struct boxd_conf *c, struct sbx_err *err)
{
	sbx_auto_close int fd = open(RING, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, sizeof(*ring)) < 0)
		return SBX_FAIL_SYS(err, SBX_E_INTERNAL, "Cannot open %s", RING);
	ring = mmap(NULL, sizeof(*ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring == MAP_FAILED)
		return SBX_FAIL_SYS(err, SBX_E_NOMEM, "Cannot map %s", RING);
	gate = sbx_boxtoken_gate_new(NONCES);
	if (!gate)
		return SBX_FAIL(err, SBX_E_NOMEM, "No memory for the tokens");
	conf = c;
	replay();
	return 0;
}

static bool mac_ok(const uint8_t raw[SBX_BOXTOKEN_SIZE])
{
	struct hmac_sha256_ctx h;
	uint8_t mac[SBX_BOXTOKEN_MAC];

	hmac_sha256_set_key(&h, sizeof(conf->key), conf->key);
	hmac_sha256_update(&h, SBX_BOXTOKEN_SIGNED, raw);
	hmac_sha256_digest(&h, sizeof(mac), mac);
	return sbx_ct_equal(mac, raw + SBX_BOXTOKEN_SIGNED, sizeof(mac));
}

static void record(const struct sbx_boxtoken *t, int64_t boot_ms)
{
	struct pass *p = &ring->pass[ring->at % NONCES];

	p->issued_at_us = 0;
	memcpy(p->nonce, t->nonce, sizeof(p->nonce));
	p->boot_ms = boot_ms;
	p->ttl_ms = t->ttl_ms;
	p->issued_at_us = t->issued_at_us;
	ring->at++;
}

int boxd_auth_check(const char *header, enum sbx_boxtoken_purpose purpose, struct sbx_err *err)
{
	uint8_t raw[SBX_BOXTOKEN_SIZE];
	struct sbx_boxtoken t;
	const char *why;
	int64_t now = sbx_boot_ms();

	if (!header || strncmp(header, SCHEME, strlen(SCHEME)) != 0 ||
		!sbx_boxtoken_parse(sbx_str_of(header + strlen(SCHEME)), &t, raw))
		return SBX_FAIL(err, SBX_E_AUTH, "A token is needed: Authorization: Sbx TOKEN");
	if (!mac_ok(raw))
		return SBX_FAIL(err, SBX_E_AUTH, "The token is not signed with this machine's key");
	if (!sbx_ct_equal(t.machine, conf->machine, sizeof(t.machine)) || t.epoch != conf->epoch)
		return SBX_FAIL(err, SBX_E_AUTH, "The token is for another machine or epoch");
	if (t.purpose != purpose)
		return SBX_FAIL(err, SBX_E_AUTH, "The token is for another purpose");
	why = sbx_boxtoken_gate_pass(gate, &t, now);
	if (why)
		return SBX_FAIL(err, SBX_E_AUTH, "The token cannot be used: %s", why);
	record(&t, now);
	return 0;
}
