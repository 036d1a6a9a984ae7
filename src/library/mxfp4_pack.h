/* libmxfp4_pack: packs the experts of MXFP4 checkpoints into the bytes that inference engines read.
 *
 * Functions return a status. MXFP4_PACK_WRONG means that the call succeeded and the answer is no. After other errors,
 * mxfp4_pack_error() has one line for each problem. Several threads may call functions at the same time, but only one
 * thread at a time may use a device. The library prints nothing and installs no signal handler.
 *
 * The first field of a structure is sizeof(the structure), since later versions add fields at the end. A field that is
 * 0 or null has its default. mxfp4-pack(1) describes the options and the JSON objects. */
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
  MXFP4_PACK_WRONG = 1,  /* the verified data are wrong */
  MXFP4_PACK_USAGE = 2,  /* an argument is invalid */
  MXFP4_PACK_INPUT = 3,  /* a file is invalid */
  MXFP4_PACK_IO = 4,     /* the system reported an error: files, memory */
  MXFP4_PACK_DEVICE = 5, /* the GPU reported an error, or is missing */
  MXFP4_PACK_INTERRUPTED = 6
} mxfp4_pack_status;

/* The version, such as "1.2.3"; static memory. */
MXFP4_PACK_API const char* mxfp4_pack_version(void);
/* The reason why the last call of this thread failed; valid until its next call. Never null. */
MXFP4_PACK_API const char* mxfp4_pack_error(void);

/* The XXH3-128 of host memory, 16 bytes, the high half first: the checksum of texts in an output. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_hash(const void* data, size_t bytes, unsigned char* hash);

/* The name of a layout, such as "marlin.codes"; null after the last. Static memory. */
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
  void* view[2];       /* address of the first row of each view, in host memory; pack and compare only read */
  int64_t stride[2];   /* bytes from row to row; 0: bytes */
  int views;           /* 1 or 2 */
  int64_t rows, bytes; /* of each view */
  int64_t padded_rows, padded_bytes;        /* of the whole matrix, as the engine pads it; 0: not padded */
  int64_t order_block;                      /* two views: rows in each of the alternating blocks; 0: two halves */
  int up_first;                             /* two views: the second comes first */
  uint8_t pad_row, pad_column, pad_storage; /* the byte of pads: whole rows, ends of rows, the layout's own */
  uint8_t add;                              /* added to every byte, including pads, modulo 256 */
} mxfp4_pack_matrix;

/* The size of the packed matrix. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_packed_bytes(const mxfp4_pack_matrix* matrix, int64_t* bytes);
/* packed: host memory of mxfp4_pack_packed_bytes(), aligned to 16 bytes, here and below. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_pack(mxfp4_pack_device* device, const mxfp4_pack_matrix* matrix,
                                                 void* packed);
/* Writes the rows of the views. MXFP4_PACK_WRONG: the rows are written, but pads differ from the matrix's pad bytes. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_unpack(mxfp4_pack_device* device, const void* packed,
                                                   const mxfp4_pack_matrix* matrix);
/* MXFP4_PACK_WRONG: a byte or a pad differs from the matrix. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_compare(mxfp4_pack_device* device, const void* packed,
                                                    const mxfp4_pack_matrix* matrix);

/* One set of an output. It packs new values of its experts, in host or GPU memory. The output's directory must stay. */
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

/* Writes the bytes that convert would write. gpu: the number of the GPU to whose memory all pointers point; -1: host
 * memory, without a stream. A GPU packs on `stream`, a cudaStream_t, and the call does not wait for it. Pieces must be
 * readable up to the next multiple of 8 bytes. For a layout file whose layout is not built in, the first call for a GPU
 * waits. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_pack_experts(const mxfp4_pack_set* set, int rank,
                                                         const mxfp4_pack_expert* experts, size_t count, int gpu,
                                                         void* stream);

/* One MoE layer on packed tensors in GPU memory, computed by this library's own kernels: compute capability 9.0. */
typedef struct mxfp4_pack_moe mxfp4_pack_moe;
typedef struct mxfp4_pack_moe_layer {
  size_t size;
  const char* tensor;  /* the name in the manifest of w13's codes */
  int rank, gpu;       /* the set's rank; the number of the GPU */
  int64_t experts;     /* in the tensors, in order of the engine's numbers */
  int64_t top_k;       /* experts of a token */
  double swiglu_limit; /* of this layer; 0: the checkpoint's */
  /* w13's and w2's, experts outermost; aligned to 16 bytes. They must stay, with their bytes. No biases: null. */
  const void *codes[2], *scales[2], *bias[2];
} mxfp4_pack_moe_layer;

/* Waits for the GPU. If the kernels cannot compute the layer here, mxfp4_pack_error() has the reason. moe null: only
 * this is found out, and no tensor is needed. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_open_moe(const mxfp4_pack_set* set, const mxfp4_pack_moe_layer* layer,
                                                     mxfp4_pack_moe** moe);
MXFP4_PACK_API void mxfp4_pack_close_moe(mxfp4_pack_moe* moe); /* null: nothing */

/* bytes: the least workspace for this many tokens at once. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_moe_workspace(const mxfp4_pack_moe* moe, int64_t tokens, int64_t* bytes);

/* All addresses are in the GPU's memory. hidden: the engine's hidden size, with its pads. */
typedef struct mxfp4_pack_moe_batch {
  size_t size;
  int64_t tokens;
  const void* x;             /* bf16 [tokens][hidden], aligned to 16 bytes */
  const int32_t* ids;        /* [tokens][top_k]: experts; one that the layer lacks contributes nothing */
  const float* weights;      /* [tokens][top_k] */
  const int32_t* expert_map; /* [mapped]: the layer's expert for an id, or -1; null: ids are the layer's */
  int64_t mapped;
  void* out;       /* bf16 [tokens][hidden], aligned to 16 bytes; not part of x */
  void* workspace; /* aligned to 256 bytes; layers on one stream may share it */
  int64_t workspace_bytes;
} mxfp4_pack_moe_batch;

/* Computes on `stream`, a cudaStream_t. It does not wait, so a CUDA graph can capture it. With a workspace for fewer
 * tokens, the tokens are computed in equal parts. Equal calls give equal bits. Each token's bits depend on the number
 * of tokens, the workspace and this token alone. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_run_moe(const mxfp4_pack_moe* moe, const mxfp4_pack_moe_batch* batch,
                                                    void* stream);

/* Reads parts of files into memory on its own threads while the caller does other work. */
typedef struct mxfp4_pack_reader mxfp4_pack_reader;
/* gpu: the number of the GPU that gets the bytes; -1: the host. threads: 12 are fast for one process, and 16 if several
 * processes of a host read at the same time. Above 12, each read and each copy has 2 MiB instead of 4. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_open_reader(int gpu, int threads, mxfp4_pack_reader** reader);
/* Waits for reads in progress; reads that have not begun are dropped. */
MXFP4_PACK_API void mxfp4_pack_close_reader(mxfp4_pack_reader* reader); /* null: nothing */

/* Reads leave files in the page cache if memory has room for them, unless the environment variable
 * MXFP4_PACK_PAGE_CACHE is yes or no. bytes: all that the processes of this host read, by this library or not, each
 * file once. If memory has less room, no file stays. Without this call, or with 0 bytes, the first files stay. Call it
 * before the first mxfp4_pack_begin_read(). */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_expect_read(mxfp4_pack_reader* reader, int64_t bytes);

typedef struct mxfp4_pack_part {
  size_t size;
  const char* file;
  int64_t offset, bytes;
  void* target;        /* not to be used during the read; null: the bytes are only hashed */
  unsigned char* hash; /* destination of its XXH3-128, 16 bytes, the high half first; null: no hash */
} mxfp4_pack_part;

/* Begins to read the parts, in order and after those of former requests. If a part ends beyond its file, the call fails
 * and nothing of the request is read. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_begin_read(mxfp4_pack_reader* reader, const mxfp4_pack_part* parts,
                                                       size_t count, int64_t* request);
/* Waits until all parts of a request are in memory. To be called once for each request. end, if not null: the time of
 * the last byte, in nanoseconds of CLOCK_MONOTONIC. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_finish_read(mxfp4_pack_reader* reader, int64_t request, int64_t* end);

/* read: the bytes that were read so far. before, now: the number of these in the page cache before they were read, and
 * now; both are -1 if the system does not report it to this user. Each pointer may be null. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_cached_bytes(mxfp4_pack_reader* reader, int64_t* read, int64_t* before,
                                                         int64_t* now);

/* Only convert and unpack write directories. A directory appears complete or not at all. */
enum {
  MXFP4_PACK_FORCE = 1,    /* replace what mxfp4-pack made */
  MXFP4_PACK_ADD = 2,      /* add a set to an output of the same checkpoint */
  MXFP4_PACK_NO_LOADER = 4 /* accept a set that no loader of the engine's release reads */
};

typedef struct mxfp4_pack_conversion {
  size_t size;
  const char *checkpoint, *out, *backend, *engine; /* required; engine: "vllm", or a release, "vllm==0.33.0" */
  const char *layout_version, *gpu, *device;
  int tp_size; /* 0: 1 */
  int threads; /* 0: one per core; here and below */
  unsigned flags;
} mxfp4_pack_conversion;

/* json, if not null: gets the object that the command prints with --json, to be freed by mxfp4_pack_free(). If the call
 * failed, it gets null. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_plan(const mxfp4_pack_conversion* conversion, char** json);
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_convert(const mxfp4_pack_conversion* conversion, char** json);
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_unpack_checkpoint(const char* out, const char* dest, int threads,
                                                              char** json);
/* The experts of one layer as the engine has them before its conversion, without pads: a safetensors file in memory, to
 * be freed by mxfp4_pack_free(). It has codes and scales (U8) and biases (BF16): w13, w13_scale, w13_bias, w2 .. Its
 * metadata `w13_rows` is "pairs" or "halves". set: its index in the manifest. module: "model.layers.0.mlp.experts". */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_unpack_layer(const char* out, int set, const char* module, int rank,
                                                         char** file, size_t* bytes);
/* source: the checkpoint, or null. level: "files", "bytes", "kernels", or null for the highest possible.
 * MXFP4_PACK_WRONG: json lists the problems. */
MXFP4_PACK_API mxfp4_pack_status mxfp4_pack_verify(const char* out, const char* source, const char* level, int threads,
                                                   char** json);
MXFP4_PACK_API void mxfp4_pack_free(char* memory); /* null: nothing */

#ifdef __cplusplus
}
#endif
#endif
