-- One row a CRS of EPSG or Esri: authority, code, kind, axes, srid, name, areas,
-- and the name of the horizontal EPSG CRS of the same code where Esri reuses one.
WITH
area AS (
  SELECT DISTINCT u.object_table_name AS t, u.object_auth_name AS a, u.object_code AS c,
         west_lon, south_lat, east_lon, north_lat
  FROM usage u JOIN extent x ON x.auth_name = u.extent_auth_name AND x.code = u.extent_code
  WHERE u.object_auth_name IN ('EPSG', 'ESRI') AND west_lon IS NOT NULL
  ORDER BY 1, 2, 3, 4, 5, 6, 7
),
areas AS (
  SELECT t, a, c,
         group_concat(printf('%.7g %.7g %.7g %.7g', west_lon, south_lat, east_lon, north_lat), ';') AS list
  FROM area GROUP BY t, a, c
),
axes AS (
  SELECT one.coordinate_system_auth_name AS a, one.coordinate_system_code AS c,
         CASE WHEN lower(one.name) LIKE '%latitude' AND lower(two.name) LIKE '%longitude'
                OR lower(one.name) = 'northing' AND lower(two.name) = 'easting'
              THEN 'NE' ELSE 'EN' END AS list
  FROM axis one JOIN axis two
    ON two.coordinate_system_auth_name = one.coordinate_system_auth_name
   AND two.coordinate_system_code = one.coordinate_system_code
  WHERE one.coordinate_system_order = 1 AND two.coordinate_system_order = 2
),
geodetic AS (
  SELECT g.*, coalesce(e.celestial_body_code, 'EARTH') AS body
  FROM geodetic_crs g
  LEFT JOIN geodetic_datum d ON d.auth_name = g.datum_auth_name AND d.code = g.datum_code
  LEFT JOIN ellipsoid e ON e.auth_name = d.ellipsoid_auth_name AND e.code = d.ellipsoid_code
),
horizontal AS (
  SELECT 'geodetic_crs' AS t, g.auth_name AS a, g.code AS c, g.name,
         CASE WHEN g.body <> 'EARTH' THEN 'not on Earth'
              WHEN g.type LIKE 'geographic%' THEN 'geographic' ELSE g.type END AS kind,
         coalesce(x.list, 'EN') AS axes,
         -- Z is dropped, so a 3D CRS is as good as the 2D one of its datum.
         CASE WHEN g.type = 'geographic 3D' THEN coalesce(
           (SELECT min(f.code) FROM geodetic_crs f
            WHERE f.auth_name = g.auth_name AND f.type = 'geographic 2D' AND NOT f.deprecated
              AND f.datum_auth_name = g.datum_auth_name AND f.datum_code = g.datum_code
              AND f.coordinate_system_code = 6422
            HAVING count(*) = 1), g.code)
         ELSE g.code END AS srid
  FROM geodetic g
  LEFT JOIN axes x ON x.a = g.coordinate_system_auth_name AND x.c = g.coordinate_system_code
  UNION ALL
  SELECT 'projected_crs', p.auth_name, p.code, p.name,
         CASE WHEN g.body <> 'EARTH' THEN 'not on Earth' ELSE 'projected' END,
         coalesce(x.list, 'EN'), p.code
  FROM projected_crs p
  LEFT JOIN geodetic g ON g.auth_name = p.geodetic_crs_auth_name AND g.code = p.geodetic_crs_code
  LEFT JOIN axes x ON x.a = p.coordinate_system_auth_name AND x.c = p.coordinate_system_code
),
crs AS (
  SELECT t, a, c, name, kind, axes, srid, NULL AS ht, NULL AS ha, NULL AS hc FROM horizontal
  UNION ALL
  SELECT 'compound_crs', v.auth_name, v.code, v.name, h.kind, h.axes, h.srid, h.t, h.a, h.c
  FROM compound_crs v JOIN horizontal h ON h.a = v.horiz_crs_auth_name AND h.c = v.horiz_crs_code
  UNION ALL
  SELECT 'vertical_crs', auth_name, code, name, 'vertical', 'EN', code, NULL, NULL, NULL FROM vertical_crs
)
SELECT crs.a, crs.c, crs.kind, crs.axes, crs.srid, crs.name, coalesce(own.list, part.list, ''),
       CASE WHEN crs.a = 'ESRI' THEN coalesce(
         (SELECT name FROM horizontal e WHERE e.a = 'EPSG' AND e.c = crs.c), '') ELSE '' END
FROM crs
LEFT JOIN areas own ON own.t = crs.t AND own.a = crs.a AND own.c = crs.c
LEFT JOIN areas part ON part.t = crs.ht AND part.a = crs.ha AND part.c = crs.hc
WHERE crs.a IN ('EPSG', 'ESRI')
  AND NOT (crs.a = 'ESRI' AND crs.kind = 'vertical'
           AND EXISTS (SELECT 1 FROM vertical_crs e WHERE e.auth_name = 'EPSG' AND e.code = crs.c))
ORDER BY crs.a, crs.c
