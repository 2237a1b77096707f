/* libnvidia-ml.so.1 for a machine without a GPU: answers from a text file that is read anew at each call.
 *
 *   gcc -shared -fPIC -O1 -Wall -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml_double.c
 *
 * The file is $LAB_NVML, else /etc/lab-nvml. Its lines are "key value" ("#" starts a comment):
 *   driver 550.54.15      nvml 12.550.54.15     count 2        cuda 13000   (newest CUDA of the driver)
 *   0.name NVIDIA H200    0.uuid GPU-..         0.pci 00000000:01:00.0
 *   0.total 150754820096  0.used 1073741824     0.reserved 634388480      (bytes)
 *   0.gpu 37   0.mem 12   0.temp 41             0.power 118000   0.limit 700000   (milliwatts)
 *   0.throttle 8          (bits of the clocks' event reasons)                0.ecc 0   (uncorrected errors)
 *   0.cc 90               (compute capability 9.0)
 *   0.proc 4242:536870912   one line a process; "4242:-" is one whose memory is not available; 0.gproc likewise
 * Faults:
 *   err.SYMBOL N      that call returns N, as in "err.nvmlInit_v2 18"
 *   0.err.SYMBOL N    the same for one GPU;  "0.err 15": every call on GPU 0 (lost)
 *   hang.SYMBOL MS    sleeps first
 *   no file at all: nvmlInit gives 9 (driver not loaded)
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef int ret;

enum {
    OK = 0,
    UNINITIALIZED = 1,
    INVALID = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT = 7,
    NO_DRIVER = 9,
    VERSION_MISMATCH = 25,
    MAX_GPUS = 64
};

/* the layouts of nvml.h; abi_check.c holds them to NVIDIA's own */
typedef struct { u64 total, free, used; } mem1;
typedef struct { u32 version; u64 total, reserved, free, used; } mem2;
typedef struct { u32 gpu, memory; } util;
typedef struct { u32 pid; u64 used; u32 gi, ci; } proc;
typedef struct { char legacy[16]; u32 domain, bus, device, dev_id, sub_id; char id[32]; } pci;

static int up;             /* nvmlInit calls less nvmlShutdown calls */
static char tag[MAX_GPUS]; /* a handle is the address tag + index */

static void *handle(u32 index) { return tag + index; }

static FILE *open_file(void) {
    const char *path = getenv("LAB_NVML");
    return fopen(path ? path : "/etc/lab-nvml", "re");
}

/* the n-th value of key into out: 1, or 0 when there is none */
static int get(const char *key, u32 n, char *out, size_t size) {
    FILE *file = open_file();
    if (!file) return 0;
    char line[512];
    int found = 0;
    size_t length = strlen(key);
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) || line[length] != ' ' || n-- != 0) continue;
        line[strcspn(line, "\r\n")] = 0;
        snprintf(out, size, "%s", line + length + 1);
        found = 1;
    }
    fclose(file);
    return found;
}

static int number(const char *key, u64 *out) {
    char text[128];
    if (!get(key, 0, text, sizeof text)) return 0;
    *out = strtoull(text, NULL, 10);
    return 1;
}

/* what the file says of this call; index -1: no GPU is named */
static ret fault(int index, const char *symbol) {
    char key[160];
    u64 value;
    snprintf(key, sizeof key, "hang.%s", symbol);
    if (number(key, &value)) usleep(value * 1000);
    snprintf(key, sizeof key, "err.%s", symbol);
    if (number(key, &value)) return value;
    if (index < 0) return OK;
    snprintf(key, sizeof key, "%d.err.%s", index, symbol);
    if (number(key, &value)) return value;
    snprintf(key, sizeof key, "%d.err", index);
    if (number(key, &value)) return value;
    return OK;
}

static u32 count(void) {
    u64 n = 0;
    number("count", &n);
    return n > MAX_GPUS ? MAX_GPUS : n;
}

static ret device(void *at, const char *symbol, int *index) {
    if (!up) return UNINITIALIZED;
    long i = (char *)at - tag;
    if (i < 0 || i >= (long)count()) return INVALID;
    *index = i;
    return fault(*index, symbol);
}

static ret text_of(int index, const char *field, char *out, u32 size) {
    char key[64], text[256];
    if (index >= 0) snprintf(key, sizeof key, "%d.%s", index, field);
    else snprintf(key, sizeof key, "%s", field);
    if (!get(key, 0, text, sizeof text)) return NOT_SUPPORTED;
    if (strlen(text) + 1 > size) return INSUFFICIENT;
    strcpy(out, text);
    return OK;
}

static ret value_of(int index, const char *field, u64 *out) {
    char key[64];
    snprintf(key, sizeof key, "%d.%s", index, field);
    return number(key, out) ? OK : NOT_SUPPORTED;
}

static ret small_value_of(int index, const char *field, u32 *out) {
    u64 value;
    ret e = value_of(index, field, &value);
    if (!e) *out = value;
    return e;
}

#define NEEDS(pointer) if (!(pointer)) return INVALID
#define SYSTEM(pointer) \
    NEEDS(pointer); \
    if (!up) return UNINITIALIZED; \
    ret e = fault(-1, __func__); \
    if (e) return e
#define DEVICE(at, pointer) \
    int i; \
    ret e = device(at, __func__, &i); \
    if (e) return e; \
    NEEDS(pointer)

static ret init(void) {
    FILE *file = open_file();
    if (!file) return NO_DRIVER;
    fclose(file);
    ret e = fault(-1, "nvmlInit_v2");
    if (!e) up++;
    return e;
}

ret nvmlInit_v2(void) { return init(); }

ret nvmlInitWithFlags(u32 flags) {
    (void)flags;
    return init();
}

ret nvmlShutdown(void) {
    if (!up) return UNINITIALIZED;
    up--;
    return OK;
}

const char *nvmlErrorString(ret code) {
    static const char *names[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "GPU access blocked by the operating system",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory", "No data",
        "vGPU ECC not supported", "Insufficient Resources", "Invalid Frequency", "Argument version mismatch",
        "Requested functionality has been deprecated", "System is not in ready state", "No supported GPUs were found",
        "Resource not in correct state to perform requested operation",
    };
    return code >= 0 && code < (int)(sizeof names / sizeof *names) ? names[code] : "Unknown Error";
}

ret nvmlSystemGetDriverVersion(char *out, u32 size) {
    SYSTEM(out);
    return text_of(-1, "driver", out, size);
}

ret nvmlSystemGetNVMLVersion(char *out, u32 size) {
    SYSTEM(out);
    return text_of(-1, "nvml", out, size);
}

ret nvmlSystemGetCudaDriverVersion_v2(int *out) {
    SYSTEM(out);
    u64 value;
    if (!number("cuda", &value)) return NOT_SUPPORTED;
    *out = value;
    return OK;
}

ret nvmlDeviceGetCount_v2(u32 *out) {
    SYSTEM(out);
    *out = count();
    return OK;
}

ret nvmlDeviceGetHandleByIndex_v2(u32 index, void **out) {
    NEEDS(out);
    if (!up) return UNINITIALIZED;
    if (index >= count()) return INVALID;
    ret e = fault(index, __func__);
    if (!e) *out = handle(index);
    return e;
}

ret nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    NEEDS(uuid);
    NEEDS(out);
    if (!up) return UNINITIALIZED;
    for (u32 i = 0; i < count(); i++) {
        char own[96];
        if (text_of(i, "uuid", own, sizeof own) || strcmp(own, uuid)) continue;
        ret e = fault(i, __func__);
        if (!e) *out = handle(i);
        return e;
    }
    return NOT_FOUND;
}

ret nvmlDeviceGetIndex(void *at, u32 *out) {
    DEVICE(at, out);
    *out = i;
    return OK;
}

ret nvmlDeviceGetName(void *at, char *out, u32 size) {
    DEVICE(at, out);
    return text_of(i, "name", out, size);
}

ret nvmlDeviceGetUUID(void *at, char *out, u32 size) {
    DEVICE(at, out);
    return text_of(i, "uuid", out, size);
}

ret nvmlDeviceGetPciInfo_v3(void *at, pci *out) {
    DEVICE(at, out);
    memset(out, 0, sizeof *out);
    return text_of(i, "pci", out->id, sizeof out->id);
}

static ret memory(int index, u64 *total, u64 *used, u64 *reserved) {
    ret e = value_of(index, "total", total);
    if (e || (e = value_of(index, "used", used))) return e;
    *reserved = 0;
    value_of(index, "reserved", reserved);
    return OK;
}

ret nvmlDeviceGetMemoryInfo(void *at, mem1 *out) {
    DEVICE(at, out);
    u64 total, used, reserved;
    if ((e = memory(i, &total, &used, &reserved))) return e;
    *out = (mem1){total, total - used - reserved, used + reserved}; /* v1 counts reserved as used */
    return OK;
}

ret nvmlDeviceGetMemoryInfo_v2(void *at, mem2 *out) {
    DEVICE(at, out);
    if (out->version != (sizeof *out | 2u << 24)) return VERSION_MISMATCH;
    u64 total, used, reserved;
    if ((e = memory(i, &total, &used, &reserved))) return e;
    *out = (mem2){out->version, total, reserved, total - used - reserved, used};
    return OK;
}

ret nvmlDeviceGetCudaComputeCapability(void *at, int *major, int *minor) {
    DEVICE(at, major);
    NEEDS(minor);
    u64 value;
    if ((e = value_of(i, "cc", &value))) return e;
    *major = value / 10;
    *minor = value % 10;
    return OK;
}

ret nvmlDeviceGetUtilizationRates(void *at, util *out) {
    DEVICE(at, out);
    if ((e = small_value_of(i, "gpu", &out->gpu))) return e;
    return small_value_of(i, "mem", &out->memory);
}

ret nvmlDeviceGetTemperature(void *at, int sensor, u32 *out) {
    DEVICE(at, out);
    return sensor ? INVALID : small_value_of(i, "temp", out);
}

ret nvmlDeviceGetPowerUsage(void *at, u32 *out) {
    DEVICE(at, out);
    return small_value_of(i, "power", out);
}

ret nvmlDeviceGetEnforcedPowerLimit(void *at, u32 *out) {
    DEVICE(at, out);
    return small_value_of(i, "limit", out);
}

ret nvmlDeviceGetCurrentClocksThrottleReasons(void *at, u64 *out) {
    DEVICE(at, out);
    return value_of(i, "throttle", out);
}

ret nvmlDeviceGetTotalEccErrors(void *at, int type, int counter, u64 *out) {
    DEVICE(at, out);
    return type != 1 || counter != 0 ? NOT_SUPPORTED : value_of(i, "ecc", out);
}

/* as the driver: *n says how many fit, then how many there are */
static ret processes(int index, const char *field, u32 *n, proc *out) {
    char key[64], text[96];
    u32 have = 0;
    snprintf(key, sizeof key, "%d.%s", index, field);
    for (; get(key, have, text, sizeof text); have++) {
        if (!out || have >= *n) continue;
        char *colon = strchr(text, ':');
        u64 used = colon && colon[1] != '-' ? strtoull(colon + 1, NULL, 10) : ~0ull;
        out[have] = (proc){strtoul(text, NULL, 10), used, ~0u, ~0u};
    }
    ret e = have > *n ? INSUFFICIENT : OK;
    *n = have;
    return e;
}

ret nvmlDeviceGetComputeRunningProcesses_v3(void *at, u32 *n, proc *out) {
    DEVICE(at, n);
    return processes(i, "proc", n, out);
}

ret nvmlDeviceGetGraphicsRunningProcesses_v3(void *at, u32 *n, proc *out) {
    DEVICE(at, n);
    return processes(i, "gproc", n, out);
}
