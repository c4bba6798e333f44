"""Result files of other load generators, read with distrust."""
