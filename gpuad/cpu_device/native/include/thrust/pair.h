#pragma once
#include <utility>
namespace thrust {
using std::make_pair; using std::pair;
}
