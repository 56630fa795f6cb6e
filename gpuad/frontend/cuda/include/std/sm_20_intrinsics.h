// What this header declares is in the prelude.
#pragma once
