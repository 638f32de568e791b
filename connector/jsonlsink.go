package connector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/afstream/afstream/stream"
)

// JSONL returns a sink that writes each item as one line of JSON to w, as encoding/json
// does, with one difference: NaN and infinite floats, which JSON does not have, become
// null instead of an error.
//
// Lines are held in memory until Flush or Close, so that a sink that fails in between
// leaves nothing that its successor would write again. The partitions of one sink share
// w; their lines never mix. w is not closed.
func JSONL[T any](w io.Writer) stream.NewSink[T] {
	out := &lockedWriter{w: w}
	return func(int, int) (stream.Sink[T], error) { return &jsonlSink[T]{out: out}, nil }
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

type jsonlSink[T any] struct {
	out *lockedWriter
	buf bytes.Buffer
}

func (s *jsonlSink[T]) Write(items []T) error {
	for i := range items {
		line, err := json.Marshal(items[i])
		if unsupported := (*json.UnsupportedValueError)(nil); errors.As(err, &unsupported) {
			line, err = appendFinite(nil, reflect.ValueOf(&items[i]).Elem())
		}
		if err != nil {
			return fmt.Errorf("write item as JSON: %w", err)
		}
		s.buf.Write(line)
		s.buf.WriteByte('\n')
	}
	return nil
}

// Flush implements stream.Flusher.
func (s *jsonlSink[T]) Flush() error {
	if s.buf.Len() == 0 {
		return nil
	}
	_, err := s.out.Write(s.buf.Bytes())
	s.buf.Reset()
	if err != nil {
		return fmt.Errorf("write JSON lines: %w", err)
	}
	return nil
}

func (s *jsonlSink[T]) Close() error { return s.Flush() }

// appendFinite appends v as encoding/json would, but with null for floats that are not
// finite. It goes down into v only where such a float can be; the rest is left to
// encoding/json, also all types that marshal themselves.
func appendFinite(dst []byte, v reflect.Value) ([]byte, error) {
	if v.IsValid() && !marshalsItself(v) {
		switch v.Kind() {
		case reflect.Float32, reflect.Float64:
			if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
				return append(dst, "null"...), nil
			}
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				return appendFinite(dst, v.Elem())
			}
		case reflect.Struct:
			return appendStruct(dst, v)
		case reflect.Map:
			if !v.IsNil() && v.Type().Key().Kind() == reflect.String {
				return appendMap(dst, v)
			}
		case reflect.Slice, reflect.Array:
			if v.Kind() == reflect.Array || !v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8 {
				return appendList(dst, v)
			}
		}
	}
	b, err := json.Marshal(anyOf(v))
	return append(dst, b...), err
}

func anyOf(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	return v.Interface()
}

func marshalsItself(v reflect.Value) bool {
	if v.CanAddr() {
		v = v.Addr()
	}
	switch v.Interface().(type) {
	case json.Marshaler, interface{ MarshalText() ([]byte, error) }:
		return true
	}
	return false
}

func appendList(dst []byte, v reflect.Value) (_ []byte, err error) {
	dst = append(dst, '[')
	for i := range v.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendFinite(dst, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendMap(dst []byte, v reflect.Value) (_ []byte, err error) {
	values := map[string]reflect.Value{}
	for it := v.MapRange(); it.Next(); {
		values[it.Key().String()] = it.Value()
	}
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(values)) {
		if dst, err = appendMember(dst, i, name, values[name]); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendStruct follows the tags "name", "-", "omitempty" and "omitzero", and takes
// embedded structs without a name apart as encoding/json does, except that it does not
// resolve name clashes between them. The tag option "string" is not applied.
func appendStruct(dst []byte, v reflect.Value) ([]byte, error) {
	dst, _, err := appendFields(append(dst, '{'), v, 0)
	return append(dst, '}'), err
}

// appendFields appends the fields of v as members after n others and returns how many
// there are then.
func appendFields(dst []byte, v reflect.Value, n int) (_ []byte, _ int, err error) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous && name == "" && embedded(f.Type) {
			if value.Kind() == reflect.Pointer {
				value = value.Elem()
			}
			if value.IsValid() {
				if dst, n, err = appendFields(dst, value, n); err != nil {
					return nil, 0, err
				}
			}
			continue
		}
		has := func(option string) bool { return slices.Contains(strings.Split(options, ","), option) }
		if tag == "-" || !f.IsExported() || has("omitempty") && isEmpty(value) || has("omitzero") && value.IsZero() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if dst, err = appendMember(dst, n, name, value); err != nil {
			return nil, 0, err
		}
		n++
	}
	return dst, n, nil
}

// embedded says whether an embedded field of the type gives its fields to the outer one.
func embedded(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// isEmpty is what omitempty means by empty.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

func appendMember(dst []byte, i int, name string, v reflect.Value) ([]byte, error) {
	if i > 0 {
		dst = append(dst, ',')
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	dst = append(dst, quoted...)
	return appendFinite(append(dst, ':'), v)
}
