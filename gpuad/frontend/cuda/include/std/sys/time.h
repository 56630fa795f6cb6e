// A header of the host: what it declares is in functions that no kernel calls.
#pragma once
