"""The emulated driver: C library, control and scenarios (``docs/scenarios.md``).

``install`` builds the library, ``Emulator`` changes the hardware, ``read_scenario`` and ``play`` do
so by a file. In C: ``functions.h`` lists what is exported, ``state.c`` holds the hardware,
``faults.c`` its faults, ``bmc.c`` its BMC, ``call.c`` the code around each exported function,
``tool.c`` the code around each tool, ``control.c`` the library by which Python changes the state.
"""
