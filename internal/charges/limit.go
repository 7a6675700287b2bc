package charges

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/rules"
)

// limitFix is how a limit is written.
const limitFix = `write it like {"token_bucket": {"rate": "10/s", "burst": 20}}, or {"all": [...]}`

// EncodeLimit writes a limit with the names and texts of policy files.
func EncodeLimit(l weir.Limit) (json.RawMessage, error) {
	if l == nil {
		return nil, errors.New("there is no limit")
	}
	k := rules.KindOf(l)
	if k == nil {
		var parts []json.RawMessage
		for _, part := range weir.Parts(l) {
			p, err := EncodeLimit(part)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
		}
		return json.Marshal(map[string]any{"all": parts})
	}
	v, fields := reflect.ValueOf(l), map[string]any{}
	for i, f := range k.Fields {
		of := v.Field(i)
		switch {
		case of.IsZero():
		case f.Word != "" && of.CanInt() && of.Int() == f.WordIs:
			fields[f.Name] = f.Word
		case f.Type == rules.RateField:
			fields[f.Name] = of.Interface().(fmt.Stringer).String()
		case f.Type == rules.DurationField:
			fields[f.Name] = duration.Format(of.Interface().(time.Duration))
		default:
			fields[f.Name] = of.Interface()
		}
	}
	return json.Marshal(map[string]any{k.Name: fields})
}

// DecodeLimit reads a limit. parse makes one of an algorithm and its fields, whose values are texts. The
// error is a *FieldError.
func DecodeLimit(text json.RawMessage, parse func(algorithm string, fields map[string]any) (weir.Limit, error)) (weir.Limit, error) {
	var of map[string]json.RawMessage
	if err := json.Unmarshal(text, &of); err != nil || len(of) != 1 {
		return nil, &FieldError{"limit", "it is not an algorithm with its fields", limitFix}
	}
	for algorithm, data := range of {
		if algorithm == "all" {
			return decodeAll(data, parse)
		}
		fields := map[string]any{}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if err := d.Decode(&fields); err != nil {
			return nil, &FieldError{"limit", "the fields of the algorithm are no object", limitFix}
		}
		for name, value := range fields {
			if n, ok := value.(json.Number); ok {
				fields[name] = n.String()
			} else if _, ok := value.(string); !ok {
				return nil, &FieldError{"limit." + name, "it is neither a text nor a number", limitFix}
			}
		}
		l, err := parse(algorithm, fields)
		if err != nil {
			return nil, &FieldError{"limit", err.Error(), limitFix}
		}
		return l, nil
	}
	panic("unreachable: there is one algorithm")
}

// mostParts bounds an all.
const mostParts = 16

func decodeAll(data json.RawMessage, parse func(string, map[string]any) (weir.Limit, error)) (weir.Limit, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil || len(list) == 0 || len(list) > mostParts {
		return nil, &FieldError{"limit.all", "it is not a list of 1 to 16 limits", limitFix}
	}
	parts := make([]weir.Limit, len(list))
	for i, text := range list {
		var err error
		if parts[i], err = DecodeLimit(text, parse); err != nil {
			return nil, err
		}
	}
	l := weir.All(parts...)
	if err := l.Validate(); err != nil {
		return nil, &FieldError{"limit.all", err.Error(), limitFix}
	}
	return l, nil
}
