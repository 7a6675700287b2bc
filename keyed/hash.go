package keyed

import (
	"hash/maphash"
	"reflect"
)

// hash returns the hash that identifies the key, unless Options.Keys is set. It reports false for
// an invalid key.
func (k *Limiter[K]) hash(key K) (h uint64, ok bool) {
	if k.hasher != nil {
		return k.hasher(key), true
	}
	return hashOf(k.seed, key, k.text, k.loose)
}

// hashOf hashes a key. text says that K is string, loose that K can hold invalid keys.
func hashOf[K comparable](seed maphash.Seed, key K, text, loose bool) (h uint64, ok bool) {
	switch {
	case text:
		return maphash.String(seed, any(key).(string)), true
	case loose:
		return hashWithTypes(seed, key)
	}
	return maphash.Comparable(seed, key), key == key
}

// hashWithTypes is hashOf for keys that hold interfaces. maphash hashes the value in an interface
// without its type, but a map compares the type too. So hashWithTypes hashes the types as well.
func hashWithTypes[K comparable](seed maphash.Seed, key K) (h uint64, ok bool) {
	defer func() {
		if recover() != nil { // only comparing or hashing the key can panic here
			ok = false
		}
	}()
	if key != key {
		return 0, false
	}
	var m maphash.Hash
	m.SetSeed(seed)
	maphash.WriteComparable(&m, key)
	writeTypes(&m, reflect.ValueOf(&key).Elem())
	return m.Sum64(), true
}

// writeTypes hashes the types of the values in interfaces.
func writeTypes(m *maphash.Hash, v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			maphash.WriteComparable(m, reflect.Type(nil))
			return
		}
		maphash.WriteComparable(m, v.Elem().Type())
		writeTypes(m, v.Elem())
	case reflect.Array:
		for i := 0; i < v.Len() && mayNotHash(v.Type()); i++ {
			writeTypes(m, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			writeTypes(m, v.Field(i))
		}
	}
}

// mayNotHash reports whether some values of a type cannot be hashed.
func mayNotHash(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Array:
		return mayNotHash(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if mayNotHash(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
