package stream

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// ownForms are the abilities by which a type tells msgpack how to write it.
var ownForms = [...]reflect.Type{
	reflect.TypeFor[msgpack.CustomEncoder](),
	reflect.TypeFor[msgpack.Marshaler](),
	reflect.TypeFor[encoding.BinaryMarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](),
}

// checkWire says why values of type t would not survive msgpack: it leaves out unexported fields without a word, and
// what an interface held comes back as another type. within are the types that lead to t, which may be recursive.
func checkWire(t reflect.Type, within []reflect.Type) error {
	if slices.Contains(within, t) || hasOwnForm(t) {
		return nil
	}
	within = append(within, t)
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return checkWire(t.Elem(), within)
	case reflect.Map:
		if err := checkWire(t.Key(), within); err != nil {
			return err
		}
		return checkWire(t.Elem(), within)
	case reflect.Struct:
		for i := range t.NumField() {
			if err := checkField(t, t.Field(i), within); err != nil {
				return err
			}
		}
	case reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return fmt.Errorf("a value of type %v cannot be read back", t)
	}
	return nil
}

func checkField(t reflect.Type, f reflect.StructField, within []reflect.Type) error {
	name, _, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
	if name == "-" || f.Name == "_" {
		return nil
	}
	if !f.IsExported() && !f.Anonymous {
		return fmt.Errorf("field %s of %v would be lost: export it, or give the type AppendBinary and UnmarshalBinary", f.Name, t)
	}
	return checkWire(f.Type, within)
}

func hasOwnForm(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return slices.ContainsFunc(ownForms[:], p.Implements)
}
