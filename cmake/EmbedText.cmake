# cmake -D IN=file -D OUT=file.c -D NAME=array -D HEADER=declares.h -P EmbedText.cmake: a text file as a C string, byte by
# byte, since a string literal may not be that long.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1, " bytes "${bytes}")
string(REGEX REPLACE "((0x.., )(0x.., )(0x.., )(0x.., )(0x.., )(0x.., )(0x.., )(0x.., ))" "\\1\n    " bytes "${bytes}")
file(WRITE ${OUT} "/* Made by the build. */\n#include \"${HEADER}\"\n\nconst char ${NAME}[] = {\n    ${bytes}0};\n")
