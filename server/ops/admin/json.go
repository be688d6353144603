package admin

import (
	"bytes"
	"fmt"
	"iter"
	"strings"

	"lockkeeper/server/ops"
	"lockkeeper/server/ops/door"
)

// Fields are a JSON object with fields in order.
type Fields []Field

// Field is a name with a value: nil, a bool, a string, an integer, a float64, a Number, []string,
// Fields, a List or an Object.
type Field struct {
	Name  string
	Value any
}

// Number is a number that is written as it is.
type Number string

// List and Object are JSON arrays and objects of any length. When the answer has become too long,
// the rest of them is dropped.
type (
	List   iter.Seq[any]
	Object iter.Seq2[string, any]
)

// writer writes JSON in the form of ZooKeeper (Jackson's default pretty printer): fields on lines
// of their own, indented by two blanks, arrays on one line.
type writer struct {
	b     bytes.Buffer
	max   int  // bytes from which on lists are cut
	cut   bool // one has been
	depth int
}

// full reports whether lists are to be cut, and notes that one is.
func (w *writer) full() bool {
	w.cut = w.cut || w.b.Len() >= w.max
	return w.cut
}

func (w *writer) value(v any) {
	switch v := v.(type) {
	case nil:
		w.b.WriteString("null")
	case Fields:
		w.object(func(yield func(string, any) bool) {
			for _, f := range v {
				if !yield(f.Name, f.Value) {
					return
				}
			}
		})
	case Object:
		w.object(func(yield func(string, any) bool) {
			for name, value := range v {
				if w.full() || !yield(name, value) {
					return
				}
			}
		})
	case []string:
		w.list(func(yield func(any) bool) {
			for _, s := range v {
				if !yield(s) {
					return
				}
			}
		})
	case List:
		w.list(func(yield func(any) bool) {
			for value := range v {
				if w.full() || !yield(value) {
					return
				}
			}
		})
	case Number:
		w.b.WriteString(string(v))
	case float64:
		w.b.WriteString(ops.JavaDouble(v))
	case string:
		w.text(v)
	default: // integers and booleans
		fmt.Fprint(&w.b, v)
	}
}

func (w *writer) object(fields iter.Seq2[string, any]) {
	w.b.WriteByte('{')
	w.depth++
	empty := true
	for name, value := range fields {
		if !empty {
			w.b.WriteByte(',')
		}
		empty = false
		w.line()
		w.text(name)
		w.b.WriteString(" : ")
		w.value(value)
	}
	w.depth--
	if empty {
		w.b.WriteByte(' ')
	} else {
		w.line()
	}
	w.b.WriteByte('}')
}

func (w *writer) line() { w.b.WriteString("\n" + strings.Repeat("  ", w.depth)) }

func (w *writer) list(values iter.Seq[any]) {
	w.b.WriteByte('[')
	empty := true
	for value := range values {
		if !empty {
			w.b.WriteByte(',')
		}
		empty = false
		w.b.WriteByte(' ')
		w.value(value)
	}
	w.b.WriteString(" ]")
}

func (w *writer) text(s string) {
	w.b.Write(door.Encode(s))
}
