/* w13 of gate and up packed, compared, unpacked; and what cannot be is refused. No output: right. */
#include <mxfp4_pack.h>
#include <stdio.h>
#include <string.h>

#define ROWS 100
#define BYTES 40
#define CHECK(is) \
  if (!(is)) return fprintf(stderr, "line %d: not %s; %s\n", __LINE__, #is, mxfp4_pack_error()), 1

static unsigned char gate[ROWS * BYTES], up[ROWS * BYTES], gate_again[ROWS * BYTES], up_again[ROWS * BYTES];
static _Alignas(64) unsigned char packed[256 * 64];

static int refuses(mxfp4_pack_device* device, mxfp4_pack_matrix w13, int64_t bytes) {
  mxfp4_pack_matrix wrong = w13;
  wrong.size = sizeof(w13) + 8;
  CHECK(mxfp4_pack_pack(device, &wrong, packed) == MXFP4_PACK_USAGE);
  wrong = w13, wrong.layout = "marlin.code";
  CHECK(mxfp4_pack_packed_bytes(&wrong, &bytes) == MXFP4_PACK_USAGE && strstr(mxfp4_pack_error(), "marlin.code"));
  wrong = w13, wrong.padded_rows = 100;
  CHECK(mxfp4_pack_packed_bytes(&wrong, &bytes) == MXFP4_PACK_USAGE);
  wrong = w13, wrong.padded_rows = 202;
  CHECK(mxfp4_pack_packed_bytes(&wrong, &bytes) == MXFP4_PACK_USAGE && strstr(mxfp4_pack_error(), "multiples of 64"));
  wrong = w13, wrong.rows = INT64_MAX;
  CHECK(mxfp4_pack_packed_bytes(&wrong, &bytes) == MXFP4_PACK_USAGE);
  wrong = w13, wrong.rows = INT64_MIN, wrong.padded_rows = 0;
  CHECK(mxfp4_pack_packed_bytes(&wrong, &bytes) == MXFP4_PACK_USAGE);
  wrong = w13, wrong.padded_rows = wrong.padded_bytes = (int64_t)1 << 31;
  CHECK(mxfp4_pack_packed_bytes(&wrong, &bytes) == MXFP4_PACK_USAGE && strstr(mxfp4_pack_error(), "at most"));
  wrong = w13, wrong.stride[0] = INT64_MAX / 2;
  CHECK(mxfp4_pack_pack(device, &wrong, packed) == MXFP4_PACK_USAGE && strstr(mxfp4_pack_error(), "beyond any memory"));
  wrong = w13, wrong.view[1] = NULL;
  CHECK(mxfp4_pack_pack(device, &wrong, packed) == MXFP4_PACK_USAGE);
  CHECK(mxfp4_pack_pack(device, &w13, packed + 1) == MXFP4_PACK_USAGE);
  CHECK(mxfp4_pack_pack(NULL, &w13, packed) == MXFP4_PACK_USAGE);
  CHECK(mxfp4_pack_open_device("abacus", &device) >= MXFP4_PACK_USAGE && device == NULL);
  return 0;
}

static int round_trip(mxfp4_pack_device* device, mxfp4_pack_matrix w13) {
  int64_t bytes = 0;
  CHECK(mxfp4_pack_packed_bytes(&w13, &bytes) == MXFP4_PACK_OK && bytes == sizeof(packed));
  CHECK(mxfp4_pack_pack(device, &w13, packed) == MXFP4_PACK_OK);
  CHECK(mxfp4_pack_compare(device, packed, &w13) == MXFP4_PACK_OK);
  w13.view[0] = gate_again, w13.view[1] = up_again;
  CHECK(mxfp4_pack_unpack(device, packed, &w13) == MXFP4_PACK_OK);
  CHECK(!memcmp(gate, gate_again, sizeof(gate)) && !memcmp(up, up_again, sizeof(up)));
  packed[77] ^= 1;
  CHECK(mxfp4_pack_compare(device, packed, &w13) == MXFP4_PACK_WRONG && !*mxfp4_pack_error());
  return refuses(device, w13, bytes);
}

int main(int count, char** arguments) {
  mxfp4_pack_matrix w13 = {.size = sizeof(w13), .layout = "marlin.codes", .view = {gate, up}, .views = 2, .rows = ROWS};
  w13.bytes = BYTES, w13.padded_rows = 256, w13.padded_bytes = 64, w13.order_block = 1, w13.pad_row = 9;
  for (int i = 0; i < ROWS * BYTES; ++i) gate[i] = (unsigned char)(i * 7), up[i] = (unsigned char)(i * 11 + 1);
  unsigned char hash[16];
  CHECK(mxfp4_pack_hash("\0\1\2", 3, hash) == MXFP4_PACK_OK && !memcmp(hash, "\xe3\xb5\x5f\x57\x94\x5a\x17\xcf", 8));
  CHECK(mxfp4_pack_hash(NULL, 0, hash) == MXFP4_PACK_OK && mxfp4_pack_hash(NULL, 1, hash) == MXFP4_PACK_USAGE);
  int layouts = 0;
  while (mxfp4_pack_layout(layouts)) ++layouts;
  CHECK(layouts > 20 && mxfp4_pack_layout(-1) == NULL);
  mxfp4_pack_device* device = NULL;
  CHECK(mxfp4_pack_open_device(count > 1 ? arguments[1] : "cpu", &device) == MXFP4_PACK_OK);
  const int result = round_trip(device, w13);
  mxfp4_pack_close_device(device);
  return result;
}
