/* libmxfp4_pack: packs the experts of MXFP4 checkpoints into the bytes that inference engines read.
 *
 * Functions return a status. After MXFP4_PACK_WRONG nothing failed: the answer is no. After the others,
 * mxfp4_pack_error() has one line for each problem. Different threads may call at the same time; a device is used by
 * one thread at a time. Nothing is printed, and no signal handler is installed.
 *
 * Structures begin with their size, sizeof(the structure): later versions put fields at the end only. A field that is 0
 * or null has its default. mxfp4-pack(1) says what the options mean and what JSON objects hold. */
#ifndef MXFP4_PACK_H
#define MXFP4_PACK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MXFP4_PACK_API __attribute__((visibility("default")))

typedef enum mxfp4_pack_status {
  MXFP4_PACK_OK = 0,
  MXFP4_PACK_WRONG = 1,  /* verified, and not right */
  MXFP4_PACK_USAGE = 2,  /* an argument cannot be so */
  MXFP4_PACK_INPUT = 3,  /* a file is not as it must be */
  MXFP4_PACK_IO = 4,     /* the system refused: files, memory */
  MXFP4_PACK_DEVICE = 5, /* the GPU refused, or is not there */
  MXFP4_PACK_INTERRUPTED = 6
} mxfp4_pack_status;

/* As --version says it, "1.2.3"; static memory. */
MXFP4_PACK_API const char* mxfp4_pack_version(void);
/* Why the last call of this thread failed; valid until its next call. Never null. */
MXFP4_PACK_API const char* mxfp4_pack_error(void);

/* Names of layouts, "marlin.codes"; null beyond the last. Static memory. */
MXFP4_PACK_API const char* mxfp4_pack_layout(int index);

typedef struct mxfp4_pack_device mxfp4_pack_device;
/* name: "cpu", "cuda" (the first GPU), "cuda:1" .., or "auto": a GPU if there is one. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_open_device(const char* name, mxfp4_pack_device** device);
MXFP4_PACK_API void mxfp4_pack_close_device(mxfp4_pack_device* device); /* null: nothing */

/* One expert's matrix as rows of bytes: w2 is one view, w13 two (gate, up). Codes have K/2 bytes in a row, scales K/32.
 */
typedef struct mxfp4_pack_matrix {
  size_t size;
  const char* layout;
  void* view[2];       /* where the rows of each view begin, in host memory; only read by pack and compare */
  int64_t stride[2];   /* bytes from row to row; 0: bytes */
  int views;           /* 1 or 2 */
  int64_t rows, bytes; /* of each view */
  int64_t padded_rows, padded_bytes;        /* of the whole matrix, as the engine pads it; 0: not padded */
  int64_t order_block;                      /* two views: blocks of so many rows in turn; 0: two halves */
  int up_first;                             /* two views: the second comes first */
  uint8_t pad_row, pad_column, pad_storage; /* the byte of pads: whole rows, ends of rows, the layout's own */
  uint8_t add;                              /* added to every byte, pads too, modulo 256 */
} mxfp4_pack_matrix;

/* What the packed matrix takes. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_packed_bytes(const mxfp4_pack_matrix* matrix, int64_t* bytes);
/* packed: host memory of mxfp4_pack_packed_bytes(), aligned to 16 bytes, here and below. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_pack(mxfp4_pack_device* device, const mxfp4_pack_matrix* matrix,
                                                 void* packed);
/* Writes the rows of the views. MXFP4_PACK_WRONG: they are written, but pads are not as the matrix prescribes. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_unpack(mxfp4_pack_device* device, const void* packed,
                                                   const mxfp4_pack_matrix* matrix);
/* MXFP4_PACK_WRONG: some byte or pad is not that of the matrix. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_compare(mxfp4_pack_device* device, const void* packed,
                                                    const mxfp4_pack_matrix* matrix);

/* One set of an output, whose experts are packed anew wherever an engine has them. Its directory must stay. */
typedef struct mxfp4_pack_set mxfp4_pack_set;
/* number: its index in the manifest's sets. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_open_set(const char* out, int number, mxfp4_pack_set** set);
MXFP4_PACK_API void mxfp4_pack_close_set(mxfp4_pack_set* set); /* null: nothing */

/* One expert of a packed tensor. */
typedef struct mxfp4_pack_expert {
  size_t size;
  const char* tensor; /* the packed tensor's name in the manifest */
  int64_t expert;
  const void* piece[2]; /* the expert's whole share of the checkpoint's tensor, or of gate's and of up's, without gaps.
                           Scales are E8M0 bytes, biases have the packed tensor's dtype */
  void* packed;         /* its share of the packed tensor; aligned to 16 bytes */
} mxfp4_pack_expert;

/* Writes the bytes that convert would. gpu: the number of the GPU whose memory all pointers are of. They are packed on
 * `stream`, a cudaStream_t, and not waited for; pieces are readable up to the next multiple of 8 bytes. Of a layout
 * file that is none of the built-in layouts the first call for a GPU waits. gpu -1: host memory, and no stream. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_pack_experts(const mxfp4_pack_set* set, int rank,
                                                         const mxfp4_pack_expert* experts, size_t count, int gpu,
                                                         void* stream);

/* Parts of files, read into memory by threads of their own while the caller has other work. */
typedef struct mxfp4_pack_reader mxfp4_pack_reader;
/* gpu: the number of the GPU whose memory is read into; -1: the host's. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_open_reader(int gpu, int threads, mxfp4_pack_reader** reader);
/* Waits for what is being read; what was not begun is not read any more. */
MXFP4_PACK_API void mxfp4_pack_close_reader(mxfp4_pack_reader* reader); /* null: nothing */

/* Reads leave files in the page cache if memory has room for them. The environment variable MXFP4_PACK_PAGE_CACHE can
 * say otherwise: auto, yes or no. bytes: what all processes of this host read together, by this library or not, each
 * file once. If memory has room for less, none stays. Without this call, or with 0 bytes, the
 * first files stay. Call it before the first mxfp4_pack_begin_read(). */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_expect_read(mxfp4_pack_reader* reader, int64_t bytes);

typedef struct mxfp4_pack_part {
  size_t size;
  const char* file;
  int64_t offset, bytes;
  void* target;        /* nothing else uses this memory meanwhile; null: the bytes are only hashed */
  unsigned char* hash; /* where its XXH3-128 goes, 16 bytes, the high half first; null: it is not wanted */
} mxfp4_pack_part;

/* Begins to read the parts, in their order and after those of earlier requests. A part that ends beyond its file is an
 * error here, and nothing of the request is read. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_begin_read(mxfp4_pack_reader* reader, const mxfp4_pack_part* parts,
                                                       size_t count, int64_t* request);
/* Returns when all of a request is in its place; once for each request. end, where it is not null: when its last byte
 * was there, in nanoseconds of CLOCK_MONOTONIC. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_finish_read(mxfp4_pack_reader* reader, int64_t request, int64_t* end);

/* read: the bytes that were read so far; before, now: how many of them the page cache had, and has, both -1 if the
 * system does not tell this user. Each may be null. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_cached_bytes(mxfp4_pack_reader* reader, int64_t* read, int64_t* before,
                                                         int64_t* now);

/* Directories are only written by convert and unpack, whole or not at all. */
enum {
  MXFP4_PACK_FORCE = 1,    /* replace what mxfp4-pack made */
  MXFP4_PACK_ADD = 2,      /* add a set to an output of the same checkpoint */
  MXFP4_PACK_SHA256 = 4,   /* write SHA256SUMS */
  MXFP4_PACK_NO_LOADER = 8 /* write also what no loader of the engine's release reads */
};

typedef struct mxfp4_pack_conversion {
  size_t size;
  const char *checkpoint, *out, *backend, *engine; /* must be given */
  const char *engine_version, *layout_version, *gpu, *device;
  int tp_size;  /* 0: 1 */
  int one_rank; /* 1: only `rank` of tp_size */
  int rank;
  int threads; /* 0: one per core; here and below */
  unsigned flags;
} mxfp4_pack_conversion;

/* json, where it is not null: the object that the command prints with --json, to be freed by mxfp4_pack_free(); null
 * where there is none, because the call failed. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_plan(const mxfp4_pack_conversion* conversion, char** json);
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_convert(const mxfp4_pack_conversion* conversion, char** json);
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_unpack_checkpoint(const char* out, const char* dest, int threads,
                                                              char** json);
/* source: the checkpoint, or null. level: "files", "bytes", "kernels", or null for the highest possible.
 * MXFP4_PACK_WRONG: json says what is. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_verify(const char* out, const char* source, const char* level, int threads,
                                                   char** json);
MXFP4_PACK_API void mxfp4_pack_free(char* json); /* null: nothing */

#ifdef __cplusplus
}
#endif
#endif
