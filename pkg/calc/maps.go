package calc

// put sets m[k] = v in a map that is made when first needed.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// empty empties a map. One that was large is replaced: clearing it takes as long as it was large once, every time.
func empty[K comparable, V any](m *map[K]V) {
	if len(*m) > 64 {
		*m = map[K]V{}
		return
	}
	clear(*m)
}
