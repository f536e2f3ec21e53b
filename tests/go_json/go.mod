module npuvigil/tests/go_json

go 1.26.0
