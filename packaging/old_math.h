/*
 * Included first in every unit of a wheel: functions of libm that the command line uses by their first version, of every glibc, which
 * differs from that of 2.29 in how errors are reported. The library itself uses none of them.
 */
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#else
#define FIRST "GLIBC_2.17"
#endif
__asm__(".symver exp,exp@" FIRST "\n.symver log,log@" FIRST "\n.symver log2,log2@" FIRST
        "\n.symver pow,pow@" FIRST);
#undef FIRST
