package policyfile

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weirflow/weir/internal/rules"
)

// policy.schema.json has placeholder lines for the algorithms. They are generated from the
// descriptions of the algorithms, so that an algorithm's fields are listed only once, beside its
// arithmetic.
const (
	kindsRequired = `        { "required": ["$kinds"] }`
	kindsFields   = `        "$kinds": {},`
)

// withKinds returns a schema with the algorithms filled in.
func withKinds(schema string) []byte {
	var required, fields []string
	for _, k := range rules.Kinds() {
		required = append(required, fmt.Sprintf("        { \"required\": [%s] }", inJSON(k.Name)))
		fields = append(fields, kindSchema(k))
	}
	schema = strings.Replace(schema, kindsRequired, strings.Join(required, ",\n"), 1)
	return []byte(strings.Replace(schema, kindsFields, strings.Join(fields, "\n"), 1))
}

// kindSchema returns the schema of one algorithm's fields, as a property of a limit.
func kindSchema(k *rules.Kind) string {
	var b strings.Builder
	fmt.Fprintf(&b, "        %s: {\n          \"description\": %s,\n          \"type\": \"object\",\n          \"additionalProperties\": false,\n",
		inJSON(k.Name), inJSON(k.Doc))
	b.WriteString(requiredSchema(k.Fields))
	b.WriteString("          \"properties\": {\n")
	for i, f := range k.Fields {
		end := ","
		if i == len(k.Fields)-1 {
			end = ""
		}
		fmt.Fprintf(&b, "            %s: %s%s\n", inJSON(f.Name), fieldSchema(f), end)
	}
	b.WriteString("          }\n        },")
	return b.String()
}

// requiredSchema returns which fields are required, and which of them may be replaced by another.
func requiredSchema(fields []rules.Field) string {
	var always, mostly []string
	var unless *rules.Unless
	for _, f := range fields {
		switch {
		case f.Required && f.Unless != nil:
			mostly, unless = append(mostly, inJSON(f.Name)), f.Unless
		case f.Required:
			always, mostly = append(always, inJSON(f.Name)), append(mostly, inJSON(f.Name))
		}
	}
	if unless == nil {
		return fmt.Sprintf("          \"required\": [%s],\n", strings.Join(always, ", "))
	}
	return fmt.Sprintf(`          "if": { "properties": { %s: { "type": "string", "pattern": %s } }, "required": [%[1]s] },
          "then": { "required": [%[3]s] },
          "else": { "required": [%[4]s] },
`, inJSON(unless.Field), inJSON(unless.Pattern), strings.Join(always, ", "), strings.Join(mostly, ", "))
}

// fieldSchema returns the schema of one field.
func fieldSchema(f rules.Field) string {
	doc := f.Doc
	if f.Default != "" {
		doc += " default: " + f.Default + "."
	}
	if f.Type == rules.RateField {
		if doc == "" {
			return `{ "$ref": "#/$defs/rate" }`
		}
		return fmt.Sprintf(`{ "$ref": "#/$defs/rate", "description": %s }`, inJSON(doc))
	}
	written := map[rules.FieldType]string{
		rules.CountField: `"integer"`, rules.DurationField: `"string"`, rules.NumberField: `"number"`, rules.AlignField: `"string"`,
	}[f.Type]
	if f.Word != "" && written != `"string"` {
		written = "[" + written + `, "string"]`
	}
	return fmt.Sprintf(`{ "description": %s, "type": %s }`, inJSON(doc), written)
}

// inJSON returns a text in JSON.
func inJSON(text string) string {
	b, _ := json.Marshal(text) // encoding a string cannot fail
	return string(b)
}
