// Go's own encoding/json, as a part of tests: reads texts into the types that it is given.
//
// Each line of standard input is {"type": …} or {"text": base64}. A type replaces the one before.
// A text is read into a new value of it; the answer is {"value": …} or {"error": …} on one line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
)

// shape describes a type: "text", "int32", "int64", "uint64", or one of its other members.
type shape struct {
	Kind   string  `json:"kind"`
	Item   *shape  `json:"item"`
	Fields []field `json:"fields"`
}

type field struct {
	Name string `json:"name"`
	Type shape  `json:"type"`
}

type line struct {
	Type *shape `json:"type"`
	Text []byte `json:"text"`
}

type answer struct {
	Value any    `json:"value"`
	Error string `json:"error,omitempty"`
}

var plain = map[string]reflect.Type{
	"text":   reflect.TypeFor[string](),
	"int32":  reflect.TypeFor[int32](),
	"int64":  reflect.TypeFor[int64](),
	"uint64": reflect.TypeFor[uint64](),
}

func (s *shape) of() reflect.Type {
	switch s.Kind {
	case "list":
		return reflect.SliceOf(s.Item.of())
	case "map":
		return reflect.MapOf(reflect.TypeFor[string](), s.Item.of())
	case "pointer":
		return reflect.PointerTo(s.Item.of())
	case "struct":
		fields := make([]reflect.StructField, len(s.Fields))
		for i, f := range s.Fields {
			tag := reflect.StructTag(fmt.Sprintf("json:%q", f.Name))
			fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: f.Type.of(), Tag: tag}
		}
		return reflect.StructOf(fields)
	}
	return plain[s.Kind]
}

func main() {
	var of reflect.Type
	lines := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := bufio.NewWriter(os.Stdout)
	answers := json.NewEncoder(out)
	for lines.More() {
		var l line
		if err := lines.Decode(&l); err != nil {
			log.Fatal(err)
		}
		if l.Type != nil {
			of = l.Type.of()
			continue
		}
		value := reflect.New(of)
		var a answer
		if err := json.Unmarshal(l.Text, value.Interface()); err != nil {
			a.Error = err.Error()
		} else {
			a.Value = value.Interface()
		}
		if err := answers.Encode(a); err != nil {
			log.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}
