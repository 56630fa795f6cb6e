// Textures as arrays that are read with the interpolation of the CUDA C++ Programming Guide ("Texture Fetching") written out, in float: what
// hardware rounds to multiples of 1/256, the weight of a neighbour, is not rounded. What is only declared is refused by name.
#pragma once
// A call tells `data`, x fastest, the channels of a texel side by side, and the extents; the rest is the kernel's own, known while it is made.
// `address`: of each axis, as cudaTextureAddressMode counts them.
struct cudaTextureObject_t {
  const float *data;
  int width, height, depth, axes, channels, address_x, address_y, address_z;
  bool linear, normalized;
  float border;
};

#define GPUAD_WRAP 0
#define GPUAD_MIRROR 2
#define GPUAD_BORDER 3
namespace gpuad_texture {
// A coordinate in texels.
GPUAD_F float in_texels(const cudaTextureObject_t &t, float x, int size, int address) {
  if (!t.normalized) return x;
  if (address == GPUAD_WRAP) x = x - floorf(x);
  if (address == GPUAD_MIRROR) {
    float turns = floorf(x), part = x - turns;
    x = turns - 2.0f * floorf(turns * 0.5f) != 0.0f ? 1.0f - part : part;
  }
  return x * size;
}

// The texel of a whole number; -1 for the border. Wrapped and mirrored coordinates are at most one texel outside.
GPUAD_F int place(int i, int size, int address) {
  if (address == GPUAD_BORDER) return i < 0 || i >= size ? -1 : i;
  if (address == GPUAD_WRAP && i < 0) return i + size;
  if (address == GPUAD_WRAP && i >= size) return i - size;
  return i < 0 ? 0 : i >= size ? size - 1 : i;
}

// The texels on both sides of a coordinate, and how much the second one weighs; without a filter it is in the first.
struct Between {
  int low, high;
  float weight;
};

GPUAD_F Between between(const cudaTextureObject_t &t, float x, int size, int address) {
  float u = in_texels(t, x, size, address) - (t.linear ? 0.5f : 0.0f), whole = floorf(u);
  int i = (int)fminf(fmaxf(whole, -2.0f), size + 1.0f);
  Between b;
  b.low = place(i, size, address);
  b.high = t.linear ? place(i + 1, size, address) : b.low;
  b.weight = t.linear ? u - whole : 0.0f;
  return b;
}

template <int Channels> GPUAD_F float texel(const cudaTextureObject_t &t, int x, int y, int z, int channel) {
  if (x < 0 || y < 0 || z < 0) return t.border;
  return t.data[((z * t.height + y) * t.width + x) * Channels + channel];
}

template <int Channels> GPUAD_F float line(const cudaTextureObject_t &t, Between x, int y, int z, int channel) {
  float low = texel<Channels>(t, x.low, y, z, channel);
  if (!t.linear) return low;
  return (1.0f - x.weight) * low + x.weight * texel<Channels>(t, x.high, y, z, channel);
}

template <int Channels> GPUAD_F float plane(const cudaTextureObject_t &t, Between x, Between y, int z, int channel) {
  float low = line<Channels>(t, x, y.low, z, channel);
  if (!t.linear) return low;
  return (1.0f - y.weight) * low + y.weight * line<Channels>(t, x, y.high, z, channel);
}

template <int Channels> GPUAD_F float fetch(const cudaTextureObject_t &t, int x, int channel) {
  assert(t.axes == 1 && t.channels == Channels);
  if (x < 0 || x >= t.width) return 0.0f;
  return t.data[x * Channels + channel];
}

template <int Channels> GPUAD_F float sample(const cudaTextureObject_t &t, float x, int channel) {
  assert(t.axes == 1 && t.channels == Channels);
  return line<Channels>(t, between(t, x, t.width, t.address_x), 0, 0, channel);
}

template <int Channels> GPUAD_F float sample(const cudaTextureObject_t &t, float x, float y, int channel) {
  assert(t.axes == 2 && t.channels == Channels);
  return plane<Channels>(t, between(t, x, t.width, t.address_x), between(t, y, t.height, t.address_y), 0, channel);
}

template <int Channels> GPUAD_F float sample(const cudaTextureObject_t &t, float x, float y, float z, int channel) {
  assert(t.axes == 3 && t.channels == Channels);
  Between a = between(t, x, t.width, t.address_x), b = between(t, y, t.height, t.address_y), c = between(t, z, t.depth, t.address_z);
  float low = plane<Channels>(t, a, b, c.low, channel);
  if (!t.linear) return low;
  return (1.0f - c.weight) * low + c.weight * plane<Channels>(t, a, b, c.high, channel);
}
}  // namespace gpuad_texture

template <class T> GPUAD_F T tex1Dfetch(cudaTextureObject_t, int);
template <class T> GPUAD_F T tex1D(cudaTextureObject_t, float);
template <class T> GPUAD_F T tex2D(cudaTextureObject_t, float, float);
template <class T> GPUAD_F T tex3D(cudaTextureObject_t, float, float, float);
template <class T> GPUAD_F T tex1DLod(cudaTextureObject_t, float, float);
template <class T> GPUAD_F T tex2DLod(cudaTextureObject_t, float, float, float);
template <class T> GPUAD_F T tex3DLod(cudaTextureObject_t, float, float, float, float);
template <class T> GPUAD_F T tex1DLayered(cudaTextureObject_t, float, int);
template <class T> GPUAD_F T tex2DLayered(cudaTextureObject_t, float, float, int);

#define GPUAD_TEXTURE(name, how, parameters, ...) \
  template <> GPUAD_F float name<float> parameters { return gpuad_texture::how<1>(t, __VA_ARGS__, 0); } \
  template <> GPUAD_F float2 name<float2> parameters { \
    return make_float2(gpuad_texture::how<2>(t, __VA_ARGS__, 0), gpuad_texture::how<2>(t, __VA_ARGS__, 1)); \
  } \
  template <> GPUAD_F float4 name<float4> parameters { \
    return make_float4( \
      gpuad_texture::how<4>(t, __VA_ARGS__, 0), gpuad_texture::how<4>(t, __VA_ARGS__, 1), gpuad_texture::how<4>(t, __VA_ARGS__, 2), \
      gpuad_texture::how<4>(t, __VA_ARGS__, 3)); \
  }
GPUAD_TEXTURE(tex1Dfetch, fetch, (cudaTextureObject_t t, int x), x)
GPUAD_TEXTURE(tex1D, sample, (cudaTextureObject_t t, float x), x)
GPUAD_TEXTURE(tex2D, sample, (cudaTextureObject_t t, float x, float y), x, y)
GPUAD_TEXTURE(tex3D, sample, (cudaTextureObject_t t, float x, float y, float z), x, y, z)
#undef GPUAD_TEXTURE
#undef GPUAD_WRAP
#undef GPUAD_MIRROR
#undef GPUAD_BORDER
