package console

import (
	"encoding/base64"
	"reflect"
	"unicode/utf8"
)

// fieldBytes is the most that a number, a time, a quote or a comma takes in an answer.
const fieldBytes = 32

// jsonBytes is a bound of the length of v as JSON, found without encoding it.
func jsonBytes(v reflect.Value) int {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return fieldBytes
		}
		return jsonBytes(v.Elem())
	case reflect.String:
		return fieldBytes + textBytes(v.String())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return fieldBytes + base64.StdEncoding.EncodedLen(v.Len())
		}
		n := fieldBytes
		for i := range v.Len() {
			n += jsonBytes(v.Index(i))
		}
		return n
	case reflect.Map:
		n := fieldBytes
		for it := v.MapRange(); it.Next(); {
			n += jsonBytes(it.Key()) + jsonBytes(it.Value())
		}
		return n
	case reflect.Struct:
		n := fieldBytes
		for i := range v.NumField() {
			n += fieldBytes + len(v.Type().Field(i).Name) + jsonBytes(v.Field(i))
		}
		return n
	}
	return fieldBytes
}

// textBytes is a bound of the length of a text with its escapes.
func textBytes(s string) int {
	if !utf8.ValidString(s) {
		return 6 * len(s)
	}
	n := len(s)
	for i := range len(s) {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' || s[i] == 0xe2 { // as in U+2028
			n += 5
		}
	}
	return n
}
