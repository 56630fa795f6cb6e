// Names of the C++ library that are templates: a text that uses them in functions of the host is read on behind them, though nothing is there.
#pragma once
namespace std {
template <class, class...> class vector;
template <class, class...> class set;
template <class, class, class...> class map;
template <class, class, class...> class unordered_map;
template <class, class> struct pair;
template <class...> class tuple;
template <class, decltype(sizeof(0))> struct array;
template <class> class function;
template <class, class...> class unique_ptr;
template <class> class shared_ptr;
class string;
template <class T> string to_string(T);
}
