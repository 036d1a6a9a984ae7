// HD marks a function that the host and, under nvcc, the device can both call.
#pragma once

#ifdef __CUDACC__
#define MXFP4_HD __host__ __device__
#else
#define MXFP4_HD
#endif
