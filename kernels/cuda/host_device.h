#ifndef RONDA_KERNELS_CUDA_HOST_DEVICE_H_
#define RONDA_KERNELS_CUDA_HOST_DEVICE_H_

// Marks what runs on the device, and on the host too: there for tests, and for a device that is made of the CPU
// (tests/testing/fake_cuda).
#ifdef __CUDACC__
#define RONDA_HOST_DEVICE __host__ __device__
#else
#define RONDA_HOST_DEVICE
#endif

#endif  // RONDA_KERNELS_CUDA_HOST_DEVICE_H_
