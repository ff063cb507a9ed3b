#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sbx/fd.h"
#include "sbx/vm.h"

#define CPUINFO_MAX (16u * 1024u * 1024u)

const char *sbx_accel_name(enum sbx_accel accel)
{
	return accel == SBX_ACCEL_KVM ? "kvm" : "tcg";
}

/* Whether the first processor's flags line names vmx (Intel) or svm (AMD). */
static const char *virtualisation_flag(struct sbx_str cpuinfo)
{
	struct sbx_str line, key, word;

	while (sbx_str_split(&cpuinfo, '\n', &line)) {
		if (!sbx_str_split(&line, ':', &key) || !sbx_str_eqz(sbx_str_trim(key), "flags"))
			continue;
		while (sbx_str_split(&line, ' ', &word)) {
			if (sbx_str_eqz(word, "vmx"))
				return "vmx";
			if (sbx_str_eqz(word, "svm"))
				return "svm";
		}
		return NULL;
	}
	return NULL;
}

int sbx_accel_pick(const char *wanted, struct sbx_str cpuinfo, bool kvm_opens, enum sbx_accel *ret,
	char reason[SBX_ACCEL_REASON_SIZE], struct sbx_err *err)
{
	const char *flag = virtualisation_flag(cpuinfo);
	bool can = flag && kvm_opens;
	char why[SBX_ACCEL_REASON_SIZE];

	if (!sbx_streq(wanted, "auto") && !sbx_streq(wanted, "kvm") && !sbx_streq(wanted, "tcg"))
		return SBX_FAIL(err, SBX_E_INVALID, "SBX_ACCEL must be auto, kvm or tcg, not \"%s\"", wanted);
	if (can)
		snprintf(why, sizeof(why), "the processor has %s and /dev/kvm opens", flag);
	else if (flag)
		snprintf(why, sizeof(why), "the processor has %s but /dev/kvm cannot be opened", flag);
	else
		snprintf(why, sizeof(why), "the processor offers neither vmx nor svm%s",
			kvm_opens ? ", though /dev/kvm is there" : "");
	if (sbx_streq(wanted, "kvm") && !can)
		return SBX_FAIL(err, SBX_E_UNAVAILABLE, "SBX_ACCEL=kvm cannot work here: %s", why);
	if (sbx_streq(wanted, "tcg"))
		snprintf(reason, SBX_ACCEL_REASON_SIZE, "SBX_ACCEL=tcg demands emulation");
	else
		memcpy(reason, why, sizeof(why));
	*ret = can && !sbx_streq(wanted, "tcg") ? SBX_ACCEL_KVM : SBX_ACCEL_TCG;
	return 0;
}

int sbx_accel_detect(const char *wanted, enum sbx_accel *ret, char reason[SBX_ACCEL_REASON_SIZE], struct sbx_err *err)
{
	sbx_auto_close int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	sbx_auto_buf struct sbx_buf cpuinfo;

	sbx_buf_init(&cpuinfo, CPUINFO_MAX);
	if (sbx_fd_slurp("/proc/cpuinfo", &cpuinfo, err) < 0)
		return -1;
	return sbx_accel_pick(wanted, sbx_buf_str(&cpuinfo), kvm >= 0, ret, reason, err);
}
