# cmake -D FOLDER=tests/examples -D OUT=file.c -D HEADER=declares.h -P EmbedExamples.cmake: the inputs of the first worked
# example of every operator, as the array op_examples.
file(GLOB files ${FOLDER}/*.txt)
set(rows "")
foreach(file IN LISTS files)
    get_filename_component(op ${file} NAME_WE)
    file(READ ${file} text)
    string(FIND "${text}" "\ncase " from)
    math(EXPR from "${from} + 6")
    string(SUBSTRING "${text}" ${from} -1 text)
    string(REGEX REPLACE "\n    (->|query|only|not) .*" "" text "${text}") # what follows the inputs
    string(FIND "${text}" "\n" end)
    string(SUBSTRING "${text}" 0 ${end} name)
    string(SUBSTRING "${text}" ${end} -1 text)
    string(REGEX REPLACE "\n        +" " " text "${text}") # values that continue
    string(REGEX REPLACE "\n    ([^\n]*)" "\n     \"\\1\\\\n\"" text "${text}")
    string(APPEND rows "    {\"${op}\", \"${name}\",${text}},\n")
endforeach()
file(WRITE ${OUT} "/* Made by the build. */\n#include \"${HEADER}\"\n\nconst struct op_example op_examples[] = {\n${rows}    {0, \"\", \"\"}};\n")
