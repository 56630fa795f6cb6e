#pragma once
#include <utility>
namespace thrust {
using std::swap;
}
