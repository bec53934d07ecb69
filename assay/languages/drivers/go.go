// Calls the program's function once for each list of arguments, and writes each answer as JSON.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

const assaySpecial = "\x00"

var assayTokens = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

var assayFunction = reflect.ValueOf(FUNCTION)

func main() {
	text, _ := io.ReadAll(os.Stdin)
	text = assayTokens.ReplaceAllFunc(text, func(token []byte) []byte {
		if token[0] == '"' {
			return token
		}
		return []byte(`"\u0000` + string(token) + `"`)
	})
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var calls [][]interface{}
	if err := decoder.Decode(&calls); err != nil {
		panic(err)
	}
	var answers strings.Builder
	for _, given := range calls {
		answers.WriteString(assayCall(assayFunction, given) + "\n")
	}
	os.WriteFile("answers", []byte(answers.String()), 0o600)
}

func assayCall(function reflect.Value, given []interface{}) (line string) {
	defer func() {
		if raised := recover(); raised != nil {
			line = `{"raised":` + assayText(fmt.Sprint(raised)) + "}"
		}
	}()
	kind := function.Type()
	if kind.NumIn() != len(given) {
		panic(fmt.Sprintf("the function takes %d arguments, not %d", kind.NumIn(), len(given)))
	}
	arguments := []reflect.Value{}
	for at, value := range given {
		arguments = append(arguments, assayRead(value, kind.In(at)))
	}
	call := function.Call
	if kind.IsVariadic() {
		call = function.CallSlice
	}
	answers := []string{}
	for _, answer := range call(arguments) {
		answers = append(answers, assayWrite(answer))
	}
	if len(answers) == 1 {
		return "[" + answers[0] + "]"
	}
	return "[[" + strings.Join(answers, ",") + "]]"
}

func assayRead(value interface{}, kind reflect.Type) reflect.Value {
	made := reflect.New(kind).Elem()
	text := strings.TrimPrefix(fmt.Sprint(value), assaySpecial)
	_, quoted := value.(string)
	var err error
	switch kind.Kind() {
	case reflect.Bool:
		made.SetBool(value.(bool))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if quoted && kind.Kind() == reflect.Int32 {
			made.SetInt(int64([]rune(text)[0]))
			break
		}
		var number int64
		number, err = strconv.ParseInt(text, 10, kind.Bits())
		made.SetInt(number)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if quoted && kind.Kind() == reflect.Uint8 {
			made.SetUint(uint64(text[0]))
			break
		}
		var number uint64
		number, err = strconv.ParseUint(text, 10, kind.Bits())
		made.SetUint(number)
	case reflect.Float32, reflect.Float64:
		var number float64
		number, err = strconv.ParseFloat(text, kind.Bits())
		made.SetFloat(number)
	case reflect.String:
		made.SetString(value.(string))
	case reflect.Slice:
		items := value.([]interface{})
		made.Set(reflect.MakeSlice(kind, 0, len(items)))
		for _, item := range items {
			made.Set(reflect.Append(made, assayRead(item, kind.Elem())))
		}
	case reflect.Array:
		for at, item := range value.([]interface{}) {
			made.Index(at).Set(assayRead(item, kind.Elem()))
		}
	case reflect.Map:
		made.Set(reflect.MakeMap(kind))
		for key, item := range value.(map[string]interface{}) {
			made.SetMapIndex(assayRead(key, kind.Key()), assayRead(item, kind.Elem()))
		}
	case reflect.Ptr:
		if value != nil {
			made.Set(reflect.New(kind.Elem()))
			made.Elem().Set(assayRead(value, kind.Elem()))
		}
	case reflect.Interface:
		if value != nil {
			made.Set(reflect.ValueOf(assayPlain(value)))
		}
	default:
		panic("a parameter of type " + kind.String() + " cannot be passed")
	}
	if err != nil {
		panic("an argument does not fit its type: " + text)
	}
	return made
}

func assayPlain(value interface{}) interface{} {
	switch one := value.(type) {
	case json.Number:
		if whole, err := strconv.Atoi(string(one)); err == nil {
			return whole
		}
		number, _ := one.Float64()
		return number
	case string:
		if strings.HasPrefix(one, assaySpecial) {
			number, _ := strconv.ParseFloat(one[1:], 64)
			return number
		}
	case []interface{}:
		for at, item := range one {
			if item != nil {
				one[at] = assayPlain(item)
			}
		}
	}
	return value
}

func assayText(text string) string {
	data, _ := json.Marshal(text)
	return string(data)
}

func assayWrite(value reflect.Value) string {
	if !value.IsValid() {
		return "null"
	}
	if err, is := value.Interface().(error); is {
		return assayText(err.Error())
	}
	items := []string{}
	switch value.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprint(value.Interface())
	case reflect.Float32, reflect.Float64:
		number := value.Float()
		if math.IsInf(number, 0) {
			return map[bool]string{true: "-Infinity", false: "Infinity"}[number < 0]
		}
		return strconv.FormatFloat(number, 'g', -1, value.Type().Bits())
	case reflect.String:
		return assayText(value.String())
	case reflect.Slice, reflect.Array:
		for at := 0; at < value.Len(); at++ {
			items = append(items, assayWrite(value.Index(at)))
		}
		return "[" + strings.Join(items, ",") + "]"
	case reflect.Map:
		for _, key := range value.MapKeys() {
			name := fmt.Sprint(key.Interface())
			if key.Kind() == reflect.Int32 { // a rune
				name = string(rune(key.Int()))
			}
			items = append(items, assayText(name)+":"+assayWrite(value.MapIndex(key)))
		}
		return "{" + strings.Join(items, ",") + "}"
	case reflect.Ptr, reflect.Interface:
		if value.IsNil() {
			return "null"
		}
		return assayWrite(value.Elem())
	}
	panic("a result of type " + value.Type().String() + " is no data")
}
