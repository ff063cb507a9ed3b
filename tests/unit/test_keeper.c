#include "../lib/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/keeper_priv.h"
#include "sbx/clock.h"
#include "sbx/enc.h"
#include "sbx/fd.h"

#define MACHINE_ID "3f2b8c1e-0d4a-4f6b-9a57-1c2d3e4f5a6b"
#define MACHINE_HEX "3f2b8c1e0d4a4f6b9a571c2d3e4f5a6b"
#define MASTER "1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"

static struct sbx_keyring *keyring(void)
{
	char path[] = "/tmp/sbx-test-key-XXXXXX";
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_keyring *keys;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(sbx_fd_write_full(fd, MASTER, sizeof(MASTER) - 1), 0);
	close(fd);
	keys = sbx_keyring_open(path, &err);
	unlink(path);
	if (!keys)
		fail_msg("%s", err.msg);
	return keys;
}

/* What the guest reads (guest/boxd_conf.c), byte for byte. */
static void test_config(void **state)
{
	struct keeper k = { .keys = keyring() };
	struct op op = { .machine = MACHINE_ID, .epoch = 2, .kid = 1, .user_network = true };
	uint8_t machine[SBX_MACHINE_ID_SIZE], key[SBX_BOXD_KEY_SIZE];
	char key_hex[2 * sizeof(key) + 1], want[1024];
	sbx_auto_buf struct sbx_buf got;
	struct sbx_slot slot;

	(void)state;
	sbx_buf_init(&got, SBX_VM_CONFIG_MAX);
	assert_int_equal(sbx_slot_space_init(&k.space, "100.64.0.0/16", "m0", 700000, NULL), 0);
	assert_int_equal(sbx_slot_at(&k.space, 7, &slot, NULL), 0);
	assert_true(sbx_hex_decode(SBX_STR(MACHINE_HEX), machine, sizeof(machine)));
	assert_int_equal(sbx_keyring_boxd_key(k.keys, 1, machine, 2, key, NULL), 0);
	sbx_hexz(key, sizeof(key), key_hex);
	snprintf(want, sizeof(want),
		"{\"version\":1,\"machineId\":\"" MACHINE_HEX "\",\"epoch\":2,\"kid\":1,\"key\":\"%s\","
		"\"hostname\":\"box-3f2b8c1e0d4a\","
		"\"control\":{\"mac\":\"02:73:63:00:00:0e\",\"address\":\"100.64.0.29\",\"host\":\"100.64.0.28\"},"
		"\"user\":{\"mac\":\"02:73:63:00:00:0f\",\"address\":\"100.64.0.31\",\"host\":\"100.64.0.30\","
		"\"dns\":[\"100.64.0.1\"]}}",
		key_hex);
	assert_int_equal(keeper_config(&k, &op, &slot, &got, NULL), 0);
	assert_string_equal(sbx_buf_z(&got), want);

	sbx_buf_reset(&got);
	op.user_network = false;
	assert_int_equal(keeper_config(&k, &op, &slot, &got, NULL), 0);
	assert_null(strstr(sbx_buf_z(&got), "\"user\""));
	sbx_buf_reset(&got);
	op.kid = 9;
	assert_int_equal(keeper_config(&k, &op, &slot, &got, NULL), -1);
	sbx_keyring_free(k.keys);
}

static int listener(int *ret_port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t n = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 8) == 0 &&
		getsockname(fd, (struct sockaddr *)&at, &n) == 0);
	*ret_port = ntohs(at.sin_port);
	return fd;
}

struct answer {
	int fd;
	const char *text[2]; /* sent with a pause between; then the connection closes */
};

static void *answer_once(void *arg)
{
	const struct answer *a = arg;
	char in[256];
	int fd = accept(a->fd, NULL, NULL);

	if (fd < 0 || recv(fd, in, sizeof(in), 0) <= 0)
		return NULL;
	for (size_t i = 0; i < 2 && a->text[i]; i++) {
		send(fd, a->text[i], strlen(a->text[i]), MSG_NOSIGNAL);
		usleep(10000);
	}
	close(fd);
	return NULL;
}

static void test_probe(void **state)
{
	static const struct {
		const char *text[2];
		bool is_up;
	} rows[] = {
		{ { "HTTP/1.1 200 OK\r\n\r\n{}", NULL }, true },
		{ { "HTTP/1.", "1 200 OK\r\n\r\n" }, true },
		{ { "HTTP/1.1 503 no\r\n\r\n", NULL }, false },
		{ { "HTTP/1.1 20", NULL }, false },
		{ { NULL, NULL }, false },
		{ { "garbage garbage garbage", NULL }, false },
	};
	int port, fd = listener(&port);

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_LEN(rows); i++) {
		struct answer a = { fd, { rows[i].text[0], rows[i].text[1] } };
		pthread_t t;

		assert_int_equal(pthread_create(&t, NULL, answer_once, &a), 0);
		if (keeper_probe("127.0.0.1", port, 1000) != rows[i].is_up)
			fail_msg("row %zu", i);
		pthread_join(t, NULL);
	}
	close(fd);
	assert_false(keeper_probe("127.0.0.1", port, 1000));
	assert_false(keeper_probe("not an address", port, 1000));
}

/* A peer that accepts and says nothing costs the budget, not more. */
static void test_probe_silence(void **state)
{
	int port, fd = listener(&port);
	int64_t start_ms = sbx_mono_ms();

	(void)state;
	assert_false(keeper_probe("127.0.0.1", port, 60));
	assert_in_range(sbx_mono_ms() - start_ms, 50, 1000);
	close(fd);
}

/* Runs script under the reaper, tells it to end after so long, and gives its exit status. */
static int reap_for(const char *script, int ms)
{
	char sh[] = "sh", option[] = "-c", text[256];
	char *argv[] = { sh, option, text, NULL };
	pid_t pid;
	int status;

	snprintf(text, sizeof(text), "%s", script);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(sbx_reap_run(argv));
	usleep((useconds_t)ms * 1000);
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_reap(void **state)
{
	(void)state;
	/* The signal is passed on, and the command's own end is what counts. */
	assert_int_equal(reap_for("trap 'exit 9' TERM; while :; do sleep 0.02; done", 200), 9);
	assert_int_equal(reap_for("sleep 60", 100), 128 + SIGTERM);
	/* Told to end in the pause before it runs again. */
	assert_int_equal(reap_for("exit 7", 300), 7);
	/* An orphan of the command is reaped while the command runs: it is no zombie. */
	assert_int_equal(reap_for("(sleep 0.05 & echo $! >/tmp/sbx-test-orphan.$PPID); sleep 0.3;"
				  " p=$(cat /tmp/sbx-test-orphan.$PPID); rm /tmp/sbx-test-orphan.$PPID;"
				  " test -e /proc/$p && exit 1; trap 'exit 5' TERM; while :; do sleep 0.02; done",
				 700),
		5);
}

static void test_reap_nothing(void **state)
{
	char none[] = "/nonexistent/program";
	char *argv[] = { none, NULL };
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(sbx_reap_run(argv));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 127);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_probe_silence),
		cmocka_unit_test(test_reap),
		cmocka_unit_test(test_reap_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
